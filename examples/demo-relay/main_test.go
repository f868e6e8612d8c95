package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// The demo verifies itself. A short run covers everything that it shows.
func TestDemo(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	chart := filepath.Join(t.TempDir(), "new", "chart.svg")
	var out, screen bytes.Buffer
	require.NoError(t, run(t.Context(), settings{events: 301, chart: chart}, &out, &screen))
	text := out.String()
	require.Regexp(t, `(?m)^ci +answers in the response +115 +115  200: 115 `, text)
	require.Regexp(t, `(?m)^builds +answers later +102 +102  202: 102 +[1-9]`, text)
	require.Regexp(t, `(?m)^partner +200 in 10 s +24 +24  200: 24 `, text)
	require.Regexp(t, `(?m)^billing +refuses all at first +60 +120  200: 60, 422: 60 `, text)
	require.Contains(t, text, "60 failed at first, and succeeded after a redrive")
	require.Contains(t, screen.String(), "events: 301 in ")
	svg, err := os.ReadFile(chart)
	require.NoError(t, err)
	require.Contains(t, string(svg), "partner: 200 in 10 s")
	left, err := os.ReadDir(os.TempDir())
	require.NoError(t, err)
	require.Empty(t, left, "the temporary store is removed")
}

// The demo detects results that do not match its plan.
func TestDemoSeesWhatIsWrong(t *testing.T) {
	d := &demo{receivers: receivers(), events: 1, ends: map[string][]string{}}
	wrong := d.verify()
	require.Len(t, wrong, 2, "no POST and no callback")
	r := d.receiver(d.plan()[0].Receiver)
	r.events, r.codes = map[string]int{}, map[int]int{}
	d.ends["shop/event-0"] = []string{"DONE"}
	r.saw("shop/event-0", 200)
	require.Empty(t, d.verify())
	r.limit = 0
	require.Len(t, d.verify(), 1)
}

func TestSettings(t *testing.T) {
	require.NoError(t, settings{100, "x"}.check(nil))
	require.ErrorContains(t, settings{99, "x"}.check(nil), "-events 99")
	require.ErrorContains(t, settings{100, ""}.check(nil), "-chart is empty")
	require.ErrorContains(t, settings{100, "x"}.check([]string{"y"}), `argument "y"`)
}
