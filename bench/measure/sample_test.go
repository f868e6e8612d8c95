package measure

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestMedian(t *testing.T) {
	for _, tt := range []struct {
		values []float64
		want   Spread
	}{
		{nil, Spread{}},
		{[]float64{3}, Spread{3, 3, 3}},
		{[]float64{9, 1, 4}, Spread{4, 1, 9}},
		{[]float64{8, 2, 4, 6}, Spread{5, 2, 8}},
	} {
		assert.Equal(t, tt.want, spreadOf(tt.values), "%v", tt.values)
	}
}

func TestMedianLeavesItsInputAlone(t *testing.T) {
	values := []float64{3, 1, 2}
	median(values)
	assert.Equal(t, []float64{3, 1, 2}, values)
}

func TestMetricOfSample(t *testing.T) {
	s := Sample{Messages: 100, Elapsed: 2 * time.Second, CPU: time.Second, Allocs: 400, Bytes: 12_800, Calls: 150}
	for metric, want := range map[Metric]float64{
		Rate: 50, TimePer: 2e7, CPUPer: 1e7, AllocsPer: 4, BytesPer: 128, CallsPer: 1.5,
	} {
		assert.InDelta(t, want, metric.Of(s), 1e-9, metric)
	}
}

func rates(values ...int) []Sample {
	samples := make([]Sample, len(values))
	for i, v := range values {
		samples[i] = Sample{Messages: v, Elapsed: time.Second}
	}
	return samples
}

func TestRatioIsTakenRoundByRound(t *testing.T) {
	// The machine halves its speed after the first round; the quotient of the medians would be 30/10.
	got := Rate.Ratio(rates(60, 30, 30), rates(20, 10, 10), 0)
	assert.Equal(t, Spread{3, 3, 3}, got)

	got = Rate.Ratio(rates(10, 40, 90), rates(10, 10, 10), 0)
	assert.Equal(t, Spread{4, 1, 9}, got)
}

func TestRatioCapsTheRival(t *testing.T) {
	assert.Equal(t, 0.5, Rate.Ratio(rates(50), rates(200), 100).Median, "over the limit the limit counts")
	assert.Equal(t, 1.0, Rate.Ratio(rates(50), rates(50), 100).Median, "under the limit the rival counts")
}

func TestRatioWithoutARival(t *testing.T) {
	assert.Equal(t, Spread{}, Rate.Ratio(rates(50), nil, 0))
}

func TestMeterCountsAllocations(t *testing.T) {
	var m meter
	m.start()
	kept := make([][]byte, 1_000)
	for i := range kept {
		kept[i] = make([]byte, 1_024)
	}
	m.stop()
	assert.GreaterOrEqual(t, m.sample.Allocs, uint64(1_000))
	assert.GreaterOrEqual(t, m.sample.Bytes, uint64(1_000*1_024))
	assert.Len(t, kept, 1_000)
	assert.Positive(t, m.sample.Elapsed)
}
