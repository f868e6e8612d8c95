package report

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/bench/measure"
)

func rates(values ...int) []measure.Sample {
	samples := make([]measure.Sample, len(values))
	for i, v := range values {
		samples[i] = measure.Sample{Messages: v, Elapsed: time.Second}
	}
	return samples
}

func sampleReport() *Report {
	return &Report{
		Environment: Environment{Client: "1.55.0", Server: "2.15.2", Rounds: 3, Processors: 2},
		Cases: []measure.CaseResult{
			{
				Name: "fast", Title: "Fast & <sharp>", Words: "fast & <sharp>",
				Contenders: []measure.ContenderResult{
					{Name: "jetpull", Ours: true, Samples: rates(300, 310, 320)},
					{Name: `rival "a" & co`, Samples: rates(100, 100, 100)},
					{Name: "rival b", Samples: rates(600, 600, 600)},
				},
				Targets: []measure.Target{
					{Metric: measure.Rate, Rival: `rival "a" & co`, AtLeast: 3},
					{Metric: measure.Rate, Rival: "rival b", AtLeast: 0.98},
					{Metric: measure.AllocsPer, AtMost: 4},
				},
			},
			{Name: "broken", Title: "Broken", Failed: "case broken: received 1 of 2 messages"},
			{
				Name: "rivals", Title: "Rivals alone", Targets: []measure.Target{{Metric: measure.Rate, Rival: "x", AtLeast: 1}},
				Contenders: []measure.ContenderResult{{Name: "x", Samples: rates(5, 5, 5)}},
			},
		},
		Idle: []measure.IdleResult{
			{Contender: "jetpull", Ours: true, IdlePlan: measure.IdleFew, Goroutines: 30, Heap: 123_450, Frames: 6.6},
			{Contender: "jetpull", Ours: true, IdlePlan: measure.IdleMany, Heap: 14e6, Stacks: 8e6, CPU: 0.016},
			{Contender: "nats.go Consume", IdlePlan: measure.IdleMany, CPU: 0.002},
		},
	}
}

func TestMarkdown(t *testing.T) {
	var b strings.Builder
	require.NoError(t, WriteMarkdown(&b, sampleReport()))
	text := b.String()
	for _, want := range []string{
		`| fast | msgs/s | rival "a" & co | 3.10× (3.00×–3.20×) | ≥ 3.00× | met |`,
		`| fast | msgs/s | rival b | 0.52× (0.50×–0.53×) | ≥ 0.98× | **missed** |`,
		`| fast | allocs/msg | – | 0.000 (0.000–0.000) | ≤ 4.000 | met |`,
		"**Failed:** case broken: received 1 of 2 messages",
		"| idle | heap of one Consume | – | 12.3 kB | ≤ 15.0 kB | met |",
		"| idle | frames that one receives in a second | – | 0.66 | ≤ 0.60 | **missed** |",
		"| idle | CPU time of 1,000, share of a core | – | 1.60 % | ≤ 1.50 % | **missed** |",
		"| heap of one Consume | 12.3 kB | – |",
		"| heap and stacks of 1,000 | 22.0 MB | 0.00 B |",
		"| CPU time of 1,000, share of a core | 1.60 % | 0.20 % |",
	} {
		assert.Contains(t, text, want)
	}
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "| rival b |") {
			assert.Equal(t, 10, strings.Count(line, "|"), "columns of %q", line)
		}
	}
}

// The chart says what the table says: the ratio of the rates, with its colour. The medians of the rates may differ the other way.
func TestChartHasTheRatiosOfTheTable(t *testing.T) {
	var b strings.Builder
	require.NoError(t, writeSVG(&b, sampleReport()))
	assert.Contains(t, b.String(), "fast &amp; &lt;sharp&gt;")
	for _, h := range headlines(sampleReport().Cases) {
		assert.Contains(t, b.String(), times(h.Rate))
	}
}

func TestComparison(t *testing.T) {
	sample := func(rate int, cpu time.Duration) measure.Sample {
		return measure.Sample{Messages: rate, Elapsed: time.Second, CPU: cpu * time.Duration(rate)}
	}
	row := func(name string, newer measure.Sample) measure.CaseResult {
		return measure.CaseResult{Name: name, Contenders: []measure.ContenderResult{
			{Name: "old", Samples: []measure.Sample{sample(1000, 100)}}, {Name: "new", Ours: true, Samples: []measure.Sample{newer}},
		}}
	}
	var b strings.Builder
	require.NoError(t, WriteComparison(&b, &Report{Against: "v1", Cases: []measure.CaseResult{
		row("same", sample(951, 104)), row("slow", sample(940, 50)), row("hot", sample(1100, 106)),
		{Name: "broken", Failed: "case broken: no"},
	}}))
	for _, want := range []string{
		"# This build and v1 in turn",
		"| same | 1.00k | 951 | 0.95× (0.95×–0.95×) | 1.04× (1.04×–1.04×) | 0.00 to 0.00 |  |",
		"| slow | 1.00k | 940 | 0.94× (0.94×–0.94×) | 0.50× (0.50×–0.50×) | 0.00 to 0.00 | **slower** |",
		"| hot | 1.00k | 1.10k | 1.10× (1.10×–1.10×) | 1.06× (1.06×–1.06×) | 0.00 to 0.00 | **more CPU** |",
		"**Failed:** case broken: no",
	} {
		assert.Contains(t, b.String(), want)
	}
}

func TestDocs(t *testing.T) {
	root := t.TempDir()
	readme := filepath.Join(root, "README.md")
	require.NoError(t, os.Mkdir(filepath.Join(root, "docs"), 0o755))
	require.NoError(t, os.WriteFile(readme, []byte("# x\n"), 0o600))
	require.ErrorContains(t, WriteDocs(sampleReport(), root), "bench:begin")

	require.NoError(t, os.WriteFile(readme, []byte("# x\n<!-- bench:begin -->\nold\n<!-- bench:end -->\ntail\n"), 0o600))
	require.NoError(t, WriteDocs(sampleReport(), root))
	text, err := os.ReadFile(readme)
	require.NoError(t, err)
	assert.True(t, strings.HasPrefix(string(text), "# x\n<!-- bench:begin -->\n![The rate"))
	assert.True(t, strings.HasSuffix(string(text), "<!-- bench:end -->\ntail\n"))
	assert.NotContains(t, string(text), "old\n")
	assert.Contains(t, string(text), `| fast & <sharp> | 310/s | 100/s with rival "a" & co | 3.10× |`)
	assert.Contains(t, string(text), "1,000 of them 1.60 % of a core (nats.go: 0.20 %)")
	assert.FileExists(t, filepath.Join(root, "docs", "bench.md"))
	assert.FileExists(t, filepath.Join(root, "docs", "bench.svg"))
}

func TestNoChartWithoutAComparison(t *testing.T) {
	var b strings.Builder
	require.NoError(t, writeSVG(&b, &Report{Cases: sampleReport().Cases[1:]}))
	assert.Empty(t, b.String())
}

func TestFilesOfAReport(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "deep", "bench")
	want := sampleReport()
	require.NoError(t, WriteFiles(want, dir))
	got, err := Read(filepath.Join(dir, "bench.json"))
	require.NoError(t, err)
	assert.Equal(t, want, got)
	for _, name := range []string{"bench.md", "bench.svg"} {
		info, err := os.Stat(filepath.Join(dir, name))
		require.NoError(t, err)
		assert.Positive(t, info.Size(), name)
	}
}

func TestShortNumbers(t *testing.T) {
	for v, want := range map[float64]string{
		0: "0.00", 5: "5.00", 12.34: "12.3", 148.2: "148", 999.6: "1.00k", 26_100: "26.1k", 1_520_000: "1.52M",
	} {
		assert.Equal(t, want, short(v))
	}
	for v, want := range map[float64]string{820: "820 ns", 7_600: "7.60 µs", 117_000: "117 µs", 6_750_000: "6.75 ms"} {
		assert.Equal(t, want, duration(v))
	}
}
