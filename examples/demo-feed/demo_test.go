package main

import (
	"bytes"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestMain runs the test binary as a watcher if the demo started it as one.
func TestMain(m *testing.M) {
	if os.Getenv(watcherDB) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// TestDemo runs the demo with few résumés. The demo itself checks the rankings and the repeated attempts.
func TestDemo(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	var out, screen bytes.Buffer
	require.NoError(t, run(t.Context(), settings{resumes: 51}, &out, &screen))
	text := out.String()
	require.Regexp(t, `(?m)^Berlin +11 +1 `, text)
	require.Regexp(t, `(?m)^Oslo +10 +1 `, text)
	require.Regexp(t, `6\d attempts: \d+ by watcher A, which was killed after [\d.]+m?s, \d+ by B\. \d items were attempted twice`, text)
	require.Contains(t, screen.String(), "watcher A is killed")
	require.Contains(t, screen.String(), "résumés: 51")
	left, err := os.ReadDir(os.TempDir())
	require.NoError(t, err)
	require.Empty(t, left, "the temporary database is removed")
}

func TestSettings(t *testing.T) {
	require.NoError(t, settings{resumes: 500}.check(nil))
	require.Error(t, settings{resumes: 1}.check(nil))
	require.Error(t, settings{resumes: 500}.check([]string{"x"}))
}

// TestRankRefusesWhatIsNotClassified calls rank too early. In the demo, the gate prevents that.
func TestRankRefusesWhatIsNotClassified(t *testing.T) {
	_, err := rank(draw(0, 1))
	require.ErrorContains(t, err, "résumé 001 is")
}
