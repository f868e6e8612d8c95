package main

import (
	"context"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestMain lets the test binary be the server or a client process, as the program itself can be.
func TestMain(m *testing.M) {
	if code, ok := hiddenMain(os.Args[1:]); ok {
		os.Exit(code)
	}
	os.Exit(m.Run())
}

func testRunner(t *testing.T, delay time.Duration) *Runner {
	t.Helper()
	servers, err := startServer(t.Context(), t.TempDir(), delay)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, servers.Close()) })
	runner, err := newRunner(servers.endpoints, settings{rounds: 1, payload: 128})
	require.NoError(t, err)
	t.Cleanup(runner.Close)
	return runner
}

func TestOneRoundOfEveryCase(t *testing.T) {
	t.Parallel()
	runner := testRunner(t, time.Millisecond)
	for _, c := range allCases() {
		if c.Name == "slow-handler" {
			c.Messages = 5
		} else {
			c.Messages = 150
		}
		t.Run(c.Name, func(t *testing.T) {
			result, err := runner.Case(t.Context(), c)
			require.NoError(t, err)
			assert.Empty(t, result.Failed)
			require.Len(t, result.Contenders, len(c.contenders()))
			for _, contender := range result.Contenders {
				require.Len(t, contender.Samples, 1, contender.Name)
				assert.Positive(t, contender.Samples[0].Elapsed, contender.Name)
				assert.Positive(t, contender.Samples[0].CPU, contender.Name)
			}
			assert.Len(t, result.judge(), len(c.Targets)*min(1, len(result.ours())))
		})
	}
}

func TestAtMostTenCasesHaveWords(t *testing.T) {
	words := 0
	for _, c := range allCases() {
		if c.Words != "" {
			words++
			assert.Contains(t, c.Rivals[0].Name, "nats.go", c.Name)
		}
	}
	assert.Positive(t, words)
	assert.LessOrEqual(t, words, 10)
}

func TestTargetsNameContendersOfTheirCase(t *testing.T) {
	for _, c := range allCases() {
		names := map[string]bool{"": true}
		for _, r := range c.Rivals {
			names[r.Name] = true
		}
		for _, target := range c.Targets {
			assert.True(t, names[target.Rival], "case %s has no rival %q", c.Name, target.Rival)
			assert.NotEqual(t, target.AtLeast > 0, target.AtMost > 0, "case %s: one bound, %+v", c.Name, target)
		}
	}
}

// TestACheatFails runs contenders that do not do the work; each has to be caught by the check of its round.
func TestACheatFails(t *testing.T) {
	runner := testRunner(t, 0)
	read := func(ack, twice bool, n int) func(context.Context, *Round) error {
		return func(ctx context.Context, r *Round) error {
			consumer, err := r.consumer(ctx)
			if err != nil {
				return err
			}
			r.Start()
			batch, err := consumer.Fetch(n)
			if err != nil {
				return err
			}
			for m := range batch.Messages() {
				r.Receive(m.Data())
				if twice {
					r.Receive(m.Data())
				}
				if ack {
					_ = m.Ack()
				}
			}
			return r.Stop(ctx)
		}
	}
	for name, tt := range map[string]struct {
		run  func(context.Context, *Round) error
		want string
	}{
		"reads too little":    {read(true, false, 9), "received 9 of 10 messages"},
		"counts a read twice": {read(true, true, 10), "more than once"},
		"fails by itself":     {func(context.Context, *Round) error { return errors.New("no such luck") }, "no such luck"},
	} {
		t.Run(name, func(t *testing.T) {
			c := Case{Name: "cheat", Messages: 10, Once: true, Rivals: []Contender{{Name: "cheat", Run: tt.run}}}
			result, err := runner.Case(t.Context(), c)
			require.ErrorContains(t, err, tt.want)
			assert.Contains(t, result.Failed, tt.want)
		})
	}
	t.Run("leaves acks out", func(t *testing.T) {
		runner.ackTimeout = 100 * time.Millisecond
		c := Case{Name: "cheat", Messages: 10, Once: true}
		c.Rivals = []Contender{{Name: "cheat", Run: read(false, false, 10)}}
		_, err := runner.Case(t.Context(), c)
		require.ErrorContains(t, err, "10 not acknowledged at the end: not settled after 100ms")
	})
}

// TestIdleFootprint is not parallel: it counts what the process has.
func TestIdleFootprint(t *testing.T) {
	all := idlePlans
	idlePlans = []idlePlan{{Subscriptions: 5}, {Subscriptions: 2, Handled: 50}}
	t.Cleanup(func() { idlePlans = all })
	runner := testRunner(t, 0)
	results, err := runner.Idle(t.Context(), 50*time.Millisecond)
	require.NoError(t, err)
	require.Len(t, results, len(idleContenders)*len(idlePlans))
	for _, r := range results {
		assert.GreaterOrEqual(t, r.Goroutines, r.Subscriptions, r.Contender)
		assert.NotZero(t, r.Heap, r.Contender)
	}
	left := 0
	for stream := range runner.js.ListStreams(t.Context()).Info() {
		left += stream.State.Consumers
	}
	assert.Zero(t, left, "the consumers are deleted")
}

// TestTwoBuilds compares this tree with itself: the overlay, the build and both client processes are what they are for
// another revision.
func TestTwoBuilds(t *testing.T) {
	t.Parallel()
	runner := testRunner(t, 0)
	b, err := startBuilds(t.Context(), "..", "..")
	require.NoError(t, err)
	runner.contenders = b.contenders
	c := selectCases(allCases(), regexp.MustCompile("^fetch-10$"), 20)[0]
	result, err := runner.Case(t.Context(), c)
	require.NoError(t, err)
	require.Len(t, result.Contenders, 2)
	assert.False(t, result.Contenders[0].Ours, "the older build has the first turn")
	for _, contender := range result.Contenders {
		require.Len(t, contender.Samples, 1)
		assert.Equal(t, 20, contender.Samples[0].Messages)
		assert.Positive(t, contender.Samples[0].CPU)
	}
	_, err = b.old.play(t.Context(), &Turn{Case: c.Name, URL: "nats://127.0.0.1:1"})
	require.ErrorContains(t, err, "connect to nats://127.0.0.1:1", "a client process says why a turn failed")
	require.NoError(t, b.Close())
	assert.NoDirExists(t, b.dir)
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
	runner := testRunner(t, 10*time.Millisecond)
	rtt, err := roundTrip(runner.servers.Delayed)
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
	chosen := selectCases(allCases(), s.name, s.messages)
	require.Len(t, chosen, 3)
	assert.Equal(t, 9, chosen[0].Messages)
	assert.Empty(t, selectCases(allCases(), regexp.MustCompile("nothing"), 0))
}

func TestAckedCases(t *testing.T) {
	assert.True(t, (&Case{}).acked())
	assert.False(t, (&Case{Consumer: jetstream.ConsumerConfig{AckPolicy: jetstream.AckNonePolicy}}).acked())
}
