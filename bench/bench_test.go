package main

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/bench/measure"
)

// TestMain lets the test binary be the server or a client process, as the program itself can be.
func TestMain(m *testing.M) {
	if code, ok := hiddenMain(os.Args[1:]); ok {
		os.Exit(code)
	}
	os.Exit(m.Run())
}

func testServer(t *testing.T, delay time.Duration) *serverProcess {
	t.Helper()
	servers, err := startServer(t.Context(), t.TempDir(), delay)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, servers.Close()) })
	return servers
}

// TestTwoBuilds compares this tree with itself: the overlay, the build and both client processes are what they are for
// another revision.
func TestTwoBuilds(t *testing.T) {
	t.Parallel()
	servers := testServer(t, 0)
	b, err := startBuilds(t.Context(), "..", "..", servers.endpoints)
	require.NoError(t, err)
	runner := measure.NewRunner(servers.links, measure.Plan{Rounds: 1, Payload: 128, Streams: "BENCH"})
	runner.Contenders = b.contenders
	c := measure.Select(regexp.MustCompile("^fetch-10$"), 20)[0]
	result, err := runner.Case(t.Context(), c)
	require.NoError(t, err)
	require.Len(t, result.Contenders, 2)
	assert.False(t, result.Contenders[0].Ours, "the older build has the first turn")
	for _, contender := range result.Contenders {
		require.Len(t, contender.Samples, 1)
		assert.Equal(t, 20, contender.Samples[0].Messages)
		assert.Positive(t, contender.Samples[0].CPU)
	}
	_, err = b.old.play(t.Context(), &measure.Turn{Case: c.Name, Stream: "GONE", Consumer: "c"})
	require.ErrorContains(t, err, "GONE", "a client process says why a turn failed")
	require.NoError(t, b.Close())
	assert.NoDirExists(t, b.dir)
}

// TestProgramFoldersAreAll: a package that -against does not know would be missing in an older tree.
func TestProgramFoldersAreAll(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "-f", "{{.ImportPath}}", ".").Output()
	require.NoError(t, err)
	var own []string
	for path := range strings.Lines(string(out)) {
		if folder, ok := strings.CutPrefix(strings.TrimSpace(path), "github.com/jetpull/jetpull/bench"); ok {
			own = append(own, "bench"+folder)
		}
	}
	assert.ElementsMatch(t, programFolders, own)
}

func TestOverlayReplacesAllOfTheOlderProgram(t *testing.T) {
	older, newer := t.TempDir(), t.TempDir()
	for _, file := range []string{
		filepath.Join(older, "gone.go"), filepath.Join(older, "both.go"), filepath.Join(older, "go.mod"),
		filepath.Join(newer, "both.go"), filepath.Join(newer, "added.go"), filepath.Join(newer, "go.mod"),
	} {
		require.NoError(t, os.WriteFile(file, nil, 0o600))
	}
	got := map[string]string{}
	require.NoError(t, overlay(got, older, newer))
	require.NoError(t, overlay(got, filepath.Join(older, "folder"), newer), "a folder that the older tree has not")
	assert.Equal(t, map[string]string{
		filepath.Join(older, "gone.go"):            "",
		filepath.Join(older, "both.go"):            filepath.Join(newer, "both.go"),
		filepath.Join(older, "added.go"):           filepath.Join(newer, "added.go"),
		filepath.Join(older, "folder", "both.go"):  filepath.Join(newer, "both.go"),
		filepath.Join(older, "folder", "added.go"): filepath.Join(newer, "added.go"),
	}, got)
}

func TestSlowLinkDelaysBothWays(t *testing.T) {
	rtt, err := roundTrip(testServer(t, 10*time.Millisecond).links.Delayed)
	require.NoError(t, err)
	assert.GreaterOrEqual(t, rtt, 20*time.Millisecond)
}

func TestServerEndsWithItsParent(t *testing.T) {
	dir := t.TempDir()
	servers, err := startServer(t.Context(), dir, 0)
	require.NoError(t, err)
	require.NoError(t, servers.Close())
	assert.True(t, servers.cmd.ProcessState.Success())
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Empty(t, left, "the store is removed")
}

func TestServeNeedsAFolder(t *testing.T) {
	assert.ErrorContains(t, serve(nil, nil, nil), "-dir is missing")
}

func TestSettings(t *testing.T) {
	for name, tt := range map[string]struct {
		args []string
		want string
	}{
		"no rounds":       {[]string{"-rounds", "0"}, "-rounds 0: must be at least 1"},
		"bad expression":  {[]string{"-case", "("}, `-case "("`},
		"short payload":   {[]string{"-payload", "4"}, "-payload 4: must be at least 8"},
		"stray argument":  {[]string{"next"}, `unexpected argument "next"`},
		"no idle window":  {[]string{"-idle", "0s"}, "-idle 0s: must be positive"},
		"negative number": {[]string{"-msgs", "-5"}, "-msgs -5: must be at least 0"},
		"docs of a part":  {[]string{"-docs", "-case", "next"}, "leave -case and -against out"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := parseSettings(tt.args)
			assert.ErrorContains(t, err, tt.want)
			assert.NotErrorIs(t, err, flag.ErrHelp)
		})
	}
	s, err := parseSettings([]string{"-case", "^next", "-msgs", "9"})
	require.NoError(t, err)
	assert.Equal(t, 7, s.rounds)
	chosen := measure.Select(s.name, s.messages)
	require.Len(t, chosen, 3)
	assert.Equal(t, 9, chosen[0].Messages)
	assert.Empty(t, measure.Select(regexp.MustCompile("nothing"), 0))
}
