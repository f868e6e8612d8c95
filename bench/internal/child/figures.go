package child

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Rate stops the clock, and reports operations per second instead of the time per operation.
func Rate(b *testing.B, unit string) {
	b.Helper()
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), unit)
	b.ReportMetric(0, "ns/op")
}

// Latency reports the quantiles p50 and p99. It sorts took.
func Latency(b *testing.B, took []time.Duration) {
	b.Helper()
	slices.Sort(took)
	for unit, q := range map[string]float64{"p50-ns": 0.5, "p99-ns": 0.99} {
		b.ReportMetric(float64(took[int(math.Ceil(q*float64(len(took))))-1]), unit)
	}
}

// ReportMemory reports the resident set of the system.
func (p *Process) ReportMemory(b *testing.B, unit string) {
	b.Helper()
	bytes, err := p.Memory()
	require.NoError(b, err)
	b.ReportMetric(bytes, unit)
}
