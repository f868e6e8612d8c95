package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestSettings(t *testing.T) {
	for want, s := range map[string]settings{
		"-rounds 0: must be at least 1": {rounds: 0, run: "."},
		"leave -run and -against out":   {rounds: 1, run: "Next", docs: true},
	} {
		assert.ErrorContains(t, s.check(), want)
	}
	require.NoError(t, settings{rounds: 1, run: "Next"}.check())
}

// TestTwoBuilds compares this tree with itself, as with another revision.
func TestTwoBuilds(t *testing.T) {
	t.Chdir("..")
	s := settings{
		pkg: "./bench/client", run: "AckNext|Fetch/batch=10$", benchtime: "20x", column: "/client", against: ".", out: t.TempDir(), rounds: 2,
	}
	require.NoError(t, s.measure(t.Context()))
	for _, build := range []string{"old", "new"} {
		text, err := os.ReadFile(filepath.Join(s.out, "client-"+build+".txt"))
		require.NoError(t, err)
		assert.NotContains(t, string(text), "BenchmarkFetch/batch=100", "as for go test -bench")
		for _, client := range []string{"jetpull", "nats.go"} {
			assert.Equal(t, 2, strings.Count(string(text), "BenchmarkAckNext/link=loopback/client="+client), build)
			assert.Equal(t, 2, strings.Count(string(text), "BenchmarkFetch/batch=10/client="+client), build)
		}
	}
	s.against = "no-such-revision"
	require.ErrorContains(t, s.measure(t.Context()), "-against no-such-revision is neither the folder of a checkout nor a revision")
	s.against, s.run = "", "Nothing"
	require.ErrorContains(t, s.measure(t.Context()), "-run Nothing matches nothing in BenchmarkNext, ")
}

// sample has two rounds. In both, jetpull is three times as fast as nats.go, and makes 4 instead of 5 allocations.
const sample = `BenchmarkConsume/link=loopback/client=nats.go-2 100 3000 ns/op 400 B/op 5 allocs/op 1000 cpu-ns/op
BenchmarkConsume/link=loopback/client=jetpull-2 100 1000 ns/op 400 B/op 4 allocs/op 1100 cpu-ns/op
BenchmarkConsume/link=loopback/client=nats.go-2 100 6000 ns/op 400 B/op 5 allocs/op 1000 cpu-ns/op
BenchmarkConsume/link=loopback/client=jetpull-2 100 2000 ns/op 400 B/op 4 allocs/op 1100 cpu-ns/op
BenchmarkIdle/consumes=1000/client=nats.go-2 1 0.2 %-of-a-core 3400 heap-B/consume
BenchmarkIdle/consumes=1000/client=jetpull-2 1 1.6 %-of-a-core 13600 heap-B/consume
`

func TestDocs(t *testing.T) {
	t.Chdir(t.TempDir())
	s := settings{docs: true, rounds: 2}
	require.NoError(t, os.WriteFile("client.txt", []byte(sample), 0o600))
	require.NoError(t, errors.Join(os.Mkdir("docs", 0o755), os.Mkdir("bench", 0o755)))
	require.NoError(t, s.report("client.txt", "table\n"))
	text, err := os.ReadFile(filepath.Join("bench", "client.md"))
	require.NoError(t, err)
	assert.Contains(t, string(text), "| a worker (Consume) | 667k/s | 222k/s with Consume | 3.00× | **1.10×** | 4.0 to 5.0 |")
	assert.Contains(t, string(text), "needs 13.6 kB of heap (nats.go: 3.4 kB), and 1,000 of them 1.60 % of a core (nats.go: 0.20 %)")
	assert.NotContains(t, string(text), "NaN", "a benchmark without figures has no row")
	assert.Contains(t, string(text), "```\ntable\n```\n")
	// The chart has the ratios of the table.
	chart, err := os.ReadFile(filepath.Join("docs", "bench.svg"))
	require.NoError(t, err)
	assert.Contains(t, string(chart), "3.00×")
}

// Ratios are computed by round, regardless of earlier summaries.
func TestRatiosAreThoseOfRounds(t *testing.T) {
	f := figures{{"Next", theirs, timeOf}: {9, 1, 4}, {"Next", ours, timeOf}: {3, 1, 2}}
	require.InDelta(t, 2.0, f.ratio("Next", theirs, ours, timeOf).Center, 0)
	require.InDelta(t, 4.0, f.of("Next", theirs, timeOf).Center, 0)
	require.InDelta(t, 2.0, f.ratio("Next", theirs, ours, timeOf).Center, 0, "after a summary of one side")
}
