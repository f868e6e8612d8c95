package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestMain lets the test binary be a watcher, as the demo is.
func TestMain(m *testing.M) {
	if os.Getenv(watcherDB) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// TestDemo runs it with few résumés. It checks by itself what is ranked and what was repeated.
func TestDemo(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	var out, screen bytes.Buffer
	chart := filepath.Join(t.TempDir(), "out", "chart.svg")
	require.NoError(t, run(t.Context(), settings{resumes: 51, chart: chart}, &out, &screen))
	text := out.String()
	require.Regexp(t, `(?m)^Berlin +11 +1 `, text)
	require.Regexp(t, `(?m)^Oslo +10 +1 `, text)
	require.Regexp(t, `6\d attempts: \d+ by watcher A, which was killed after [\d.]+m?s, \d+ by B\. \d items were attempted twice`, text)
	require.Contains(t, screen.String(), "watcher A is killed")
	require.Contains(t, screen.String(), "résumés: 51")
	picture, err := os.Open(chart)
	require.NoError(t, err)
	defer picture.Close()
	for d := xml.NewDecoder(picture); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
	}
	left, err := os.ReadDir(os.TempDir())
	require.NoError(t, err)
	require.Empty(t, left, "the temporary database is removed")
}

func TestSettings(t *testing.T) {
	require.NoError(t, settings{resumes: 500, chart: "x"}.check(nil))
	for _, s := range []settings{{resumes: 1, chart: "x"}, {resumes: 500}} {
		require.Error(t, s.check(nil))
	}
	require.Error(t, settings{resumes: 500, chart: "x"}.check([]string{"x"}))
}

// TestRankRefusesWhatIsNotClassified: the gate is what keeps this from happening.
func TestRankRefusesWhatIsNotClassified(t *testing.T) {
	_, err := rank(draw(0, 1))
	require.ErrorContains(t, err, "résumé 001 is")
}
