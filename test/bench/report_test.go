package main

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func sampleReport() *Report {
	return &Report{
		Environment: Environment{Client: "1.55.0", Server: "2.15.2", Rounds: 3, Processors: 2},
		Cases: []CaseResult{
			{
				Name: "fast", Title: "Fast & <sharp>",
				Contenders: []ContenderResult{
					{Name: oursName, Ours: true, Samples: rates(300, 310, 320)},
					{Name: `rival "a" & co`, Samples: rates(100, 100, 100)},
					{Name: "rival b", Samples: rates(600, 600, 600)},
				},
				Targets: []Target{
					{Metric: Rate, Rival: `rival "a" & co`, AtLeast: 3},
					{Metric: Rate, Rival: "rival b", AtLeast: 0.98},
					{Metric: AllocsPer, AtMost: 4},
				},
			},
			{Name: "broken", Title: "Broken", Failed: "case broken: received 1 of 2 messages"},
			{
				Name: "rivals", Title: "Rivals alone", Targets: []Target{{Metric: Rate, Rival: "x", AtLeast: 1}},
				Contenders: []ContenderResult{{Name: "x", Samples: rates(5, 5, 5)}},
			},
		},
		Idle: []IdleResult{{Contender: oursName, Ours: true, Subscriptions: 100, Goroutines: 200, Memory: 12_345, Requests: 3.3}},
	}
}

func TestJudge(t *testing.T) {
	report := sampleReport()
	verdicts := report.Cases[0].judge()
	require.Len(t, verdicts, 3)
	assert.Equal(t, []bool{true, false, true}, []bool{verdicts[0].Met, verdicts[1].Met, verdicts[2].Met})
	assert.InDelta(t, 3.1, verdicts[0].Value.Median, 1e-9)
	assert.Empty(t, report.Cases[1].judge(), "a failed case has no verdict")
	assert.Empty(t, report.Cases[2].judge(), "rivals alone have no verdict")
}

func TestJudgeDoesNotCallAMissingRivalMet(t *testing.T) {
	c := CaseResult{
		Contenders: []ContenderResult{{Name: oursName, Ours: true, Samples: rates(300)}},
		Targets:    []Target{{Metric: Rate, Rival: "gone", AtLeast: 1}},
	}
	require.Len(t, c.judge(), 1)
	assert.False(t, c.judge()[0].Met)
}

func TestMarkdown(t *testing.T) {
	var b strings.Builder
	require.NoError(t, writeMarkdown(&b, sampleReport()))
	text := b.String()
	for _, want := range []string{
		`| fast | msgs/s | rival "a" & co | 3.10× (3.00×–3.20×) | ≥ 3.00× | met |`,
		`| fast | msgs/s | rival b | 0.52× (0.50×–0.53×) | ≥ 0.98× | **missed** |`,
		`| fast | allocs/msg | – | 0.000 (0.000–0.000) | ≤ 4.000 | met |`,
		"**Failed:** case broken: received 1 of 2 messages",
		"| jetpull | 100 | 200 | 12.3 kB | 3.30 | 0.00 |",
	} {
		assert.Contains(t, text, want)
	}
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "| rival b |") {
			assert.Equal(t, 10, strings.Count(line, "|"), "columns of %q", line)
		}
	}
}

func TestSVGIsWellFormed(t *testing.T) {
	var b strings.Builder
	require.NoError(t, writeSVG(&b, sampleReport()))
	elements := map[string]int{}
	decoder := xml.NewDecoder(strings.NewReader(b.String()))
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		if start, ok := token.(xml.StartElement); ok {
			elements[start.Name.Local]++
		}
	}
	assert.Equal(t, 1, elements["svg"])
	assert.Equal(t, 2, elements["g"], "one bar for each rival of a case that has figures of ours")
	assert.Contains(t, b.String(), `class="met"`)
	assert.Contains(t, b.String(), `class="missed"`)
	assert.Contains(t, b.String(), "rival &#34;a&#34; &amp; co")
}

func TestSVGBarsStayOnTheAxis(t *testing.T) {
	bars := []comparison{
		{label: "slow", ratio: Spread{0.01, 0.005, 0.02}, target: 1},
		{label: "fast", ratio: Spread{500, 400, 600}, target: 300, met: true},
	}
	c := layOut(bars, &Environment{})
	require.Len(t, c.Rows, 2)
	assert.Less(t, c.Rows[0].X, c.One, "slower goes to the left")
	assert.Equal(t, c.One, c.Rows[1].X, "faster starts at 1×")
	for _, r := range c.Rows {
		for _, x := range []float64{r.X, r.X + r.Width, r.Low, r.High, r.Target} {
			assert.GreaterOrEqual(t, x, float64(labelWidth))
			assert.LessOrEqual(t, x, float64(chartWidth-valueWidth+1))
		}
	}
	assert.NotEmpty(t, c.Ticks)
}

func TestNoChartWithoutAComparison(t *testing.T) {
	var b strings.Builder
	require.NoError(t, writeSVG(&b, &Report{Cases: sampleReport().Cases[1:]}))
	assert.Empty(t, b.String())
}

func TestFilesOfAReport(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "deep", "bench")
	want := sampleReport()
	require.NoError(t, writeFiles(want, dir))
	text, err := os.ReadFile(filepath.Join(dir, "bench.json"))
	require.NoError(t, err)
	var got Report
	require.NoError(t, json.Unmarshal(text, &got))
	assert.Equal(t, *want, got)
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
