package main

import (
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/cmd/jetpull/internal/child"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/consumecmd"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/consumecmd/perform"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/pulling"
)

// needShell skips where there is no shell to write commands in.
func needShell(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("sh"); err != nil {
		t.Skip("there is no sh on this system")
	}
}

func TestConsumePrintsUntilIdle(t *testing.T) {
	t.Parallel()
	f := newFixture(t, jetstream.ConsumerConfig{})
	f.publish(t, numbers(300)...)
	r := f.run(t, "consume", "S", "c", "--idle", "1s", "--raw")
	require.Equal(t, cli.ExitDone, r.code, r.err)
	require.Equal(t, strings.Join(numbers(300), "\n")+"\n", r.out)
	require.Contains(t, r.err, "300 acknowledged in ")
	f.settled(t, 300)
}

func TestConsumeNothing(t *testing.T) {
	f := newFixture(t, jetstream.ConsumerConfig{})
	r := f.run(t, "consume", "S", "c", "--idle", "200ms", "-q")
	require.Equal(t, result{cli.ExitNoMessages, "", "jetpull: no messages within 200ms\n"}, r)
}

func TestConsumeCount(t *testing.T) {
	t.Parallel()
	f := newFixture(t, jetstream.ConsumerConfig{AckWait: time.Minute})
	f.publish(t, numbers(250)...)
	r := f.run(t, "consume", "S", "c", "--count", "120", "--raw")
	require.Equal(t, cli.ExitDone, r.code, r.err)
	require.Equal(t, 120, strings.Count(r.out, "\n"))
	require.Regexp(t, `^120 acknowledged in \S+s, [\d,]+/s\n$`, r.err, "one line")
	require.EqualValues(t, 120, f.info(t).Delivered.Consumer, "no message was handed back")

	r = f.run(t, "consume", "S", "c", "--count", "200", "--idle", "1s", "-q", "--raw")
	require.Equal(t, cli.ExitTimeout, r.code)
	require.Contains(t, r.err, "130 of 200, then nothing for 1s")
	f.settled(t, 250)
}

// TestConsumeCountTakesNoMore is for consumers whose deliveries are limited: a
// message that is handed back would be lost.
func TestConsumeCountTakesNoMore(t *testing.T) {
	f := newFixture(t, jetstream.ConsumerConfig{MaxDeliver: 1})
	f.publish(t, numbers(10)...)
	r := f.run(t, "consume", "S", "c", "--count", "4", "-q", "--raw")
	require.Equal(t, result{cli.ExitDone, "1\n2\n3\n4\n", ""}, r)
	require.EqualValues(t, 4, f.info(t).Delivered.Consumer)
}

func TestConsumeUntilInterrupted(t *testing.T) {
	f := newFixture(t, jetstream.ConsumerConfig{})
	out, errOut, stop := f.start(t, "consume", "S", "c", "--json")
	f.publish(t, "one", "two")
	require.Eventually(t, func() bool { return strings.Count(out.String(), "\n") == 2 }, 10*time.Second, 5*time.Millisecond)
	require.Equal(t, cli.ExitDone, stop(), "a worker that is stopped has done its work")
	all := jsonLines[pulling.Message](t, out.String())
	require.Equal(t, "one", *all[0].Data)
	require.Equal(t, 2, jsonLines[consumecmd.Tally](t, errOut.String())[0].Acknowledged)
}

func TestConsumeBoundedAndInterrupted(t *testing.T) {
	f := newFixture(t, jetstream.ConsumerConfig{})
	out, errOut, stop := f.start(t, "consume", "S", "c", "--count", "5", "--raw")
	f.publish(t, "one")
	require.Eventually(t, func() bool { return out.String() == "one\n" }, 10*time.Second, 5*time.Millisecond)
	require.Equal(t, cli.ExitInterrupted, stop())
	require.Contains(t, errOut.String(), "interrupted after 1 message\n")
}

func TestConsumeRunsACommandPerMessage(t *testing.T) {
	needShell(t)
	f := newFixture(t, jetstream.ConsumerConfig{})
	f.publish(t, "the payload")
	r := f.run(t, "consume", "S", "c", "--count", "1", "-q", "--", "sh", "-c", `
		echo "$JETPULL_STREAM $JETPULL_CONSUMER $JETPULL_SUBJECT $JETPULL_STREAM_SEQ $JETPULL_CONSUMER_SEQ $JETPULL_DELIVERED $JETPULL_PENDING"
		echo "$JETPULL_HEADER_X_KIND $JETPULL_HEADERS"
		cat
		echo oops >&2`)
	require.Equal(t, cli.ExitDone, r.code, r.err)
	require.Equal(t, "S c s.a 1 1 1 0\none {\"X-Kind\":[\"one\",\"two\"]}\nthe payload\n", r.out)
	require.Equal(t, "oops\n", r.err)
	f.settled(t, 1)
}

func TestConsumeExitCodeOfTheCommandSettles(t *testing.T) {
	t.Parallel()
	needShell(t)
	f := newFixture(t, jetstream.ConsumerConfig{})
	f.publish(t, numbers(4)...)
	// 2 is wrong for good, 3 fails once.
	r := f.run(t, "consume", "S", "c", "--idle", "1s", "--retry-delays", "10ms", "--json", "--", "sh", "-c",
		`case $JETPULL_STREAM_SEQ$JETPULL_DELIVERED in 2*) exit 65;; 31) exit 7;; esac; echo done`)
	require.Equal(t, cli.ExitFailed, r.code, r.err)
	outcomes := map[uint64][]string{}
	for _, line := range jsonLines[perform.Result](t, r.out) {
		outcomes[line.StreamSeq] = append(outcomes[line.StreamSeq], line.Outcome)
		require.NotNil(t, line.Exit)
	}
	require.Equal(t, map[uint64][]string{1: {"acknowledged"}, 2: {"terminated"}, 3: {"retried", "acknowledged"}, 4: {"acknowledged"}}, outcomes)
	require.Contains(t, r.err, "done\n", "with --json what commands print goes to stderr")
	require.Contains(t, r.err, `"acknowledged":3,"retried":1,"dead_lettered":0,"terminated":1,"handed_back":0,`)
	require.Contains(t, r.err, "not every message was acknowledged: 1 failed or were terminated", "3 did not fail in the end")
	require.Contains(t, r.err, `exit status 7","outcome":"retried","delay":0.01`)
	require.Contains(t, r.err, `exit status 65","outcome":"terminated"`)
	f.settled(t, 4)
}

// TestConsumeReportsAFailureOnce has a command fail twice.
func TestConsumeReportsAFailureOnce(t *testing.T) {
	t.Parallel()
	needShell(t)
	for asJSON, want := range map[string]string{"--json=false": "1 acknowledged, 2 retried in ", "--json": `"acknowledged":1,"retried":2`} {
		f := newFixture(t, jetstream.ConsumerConfig{})
		f.publish(t, "one")
		r := f.run(t, "consume", "S", "c", "--idle", "1s", "--retry-delays", "10ms", asJSON, "--", "sh", "-c", "test $JETPULL_DELIVERED = 3")
		require.Equal(t, cli.ExitDone, r.code, r.err)
		require.Equal(t, 2, strings.Count(r.err, "exit status 1"), r.err)
		require.Contains(t, r.err, want)
	}
}

func TestConsumeDeadLetter(t *testing.T) {
	t.Parallel()
	needShell(t)
	f := newFixture(t, jetstream.ConsumerConfig{})
	_, err := f.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "DEAD", Subjects: []string{"dead"}})
	require.NoError(t, err)
	f.publish(t, "poison")
	r := f.run(t, "consume", "S", "c", "--idle", "1s", "--max-attempts", "2", "--retry-delays", "10ms",
		"--dead-letter", "dead", "--", "false")
	require.Equal(t, cli.ExitFailed, r.code, r.err)
	require.Contains(t, r.err, "0 acknowledged, 1 retried, 1 dead-lettered in ")
	require.Regexp(t, `(?s)outcome=retried delay=10ms.*outcome=dead_lettered`, r.err)
	dead, err := f.js.Stream(t.Context(), "DEAD")
	require.NoError(t, err)
	m, err := dead.GetMsg(t.Context(), 1)
	require.NoError(t, err)
	require.Equal(t, "poison", string(m.Data))
	f.settled(t, 1)
}

// TestConsumeEndsCommands sees that a command that outlives the drain is ended
// with what it started, and its message comes again.
func TestConsumeEndsCommands(t *testing.T) {
	needShell(t)
	f := newFixture(t, jetstream.ConsumerConfig{AckWait: time.Minute})
	f.publish(t, "one")
	out, errOut, stop := f.start(t, "consume", "S", "c", "--drain-timeout", "50ms", "--retry-delays", "0s", "--",
		"sh", "-c", "echo started; sleep 600 & wait")
	require.Eventually(t, func() bool { return out.String() == "started\n" }, 10*time.Second, 5*time.Millisecond)
	begin := time.Now()
	require.Equal(t, cli.ExitInterrupted, stop(), errOut.String())
	require.Less(t, time.Since(begin), child.OutputAfter, "the children are ended too, or Wait would go on for their output")
	require.Contains(t, errOut.String(), "drain timeout")
	r := f.run(t, "fetch", "S", "c")
	require.Contains(t, r.out, "[1] s.a (delivery 2): one")
}

// TestConsumeKeepsSlowCommandsInProgress has a command take several times as
// long as the server waits for an acknowledgement.
func TestConsumeKeepsSlowCommandsInProgress(t *testing.T) {
	t.Parallel()
	needShell(t)
	f := newFixture(t, jetstream.ConsumerConfig{AckWait: 500 * time.Millisecond})
	f.publish(t, numbers(3)...)
	r := f.run(t, "consume", "S", "c", "--idle", "1s", "--json", "--", "sleep", "1.2")
	require.Equal(t, cli.ExitDone, r.code, r.err)
	require.Len(t, jsonLines[perform.Result](t, r.out), 3, "each was delivered once")
	f.settled(t, 3)
}

func TestConsumeDoesNotMixLines(t *testing.T) {
	t.Parallel()
	needShell(t)
	f := newFixture(t, jetstream.ConsumerConfig{})
	f.publish(t, numbers(40)...)
	r := f.run(t, "consume", "S", "c", "--idle", "1s", "-q", "--concurrency", "8", "--", "sh", "-c",
		`printf 'one '; printf 'line\n'; printf 'and an end'`)
	require.Equal(t, cli.ExitDone, r.code, r.err)
	require.Equal(t, 40, strings.Count(r.out, "one line\n"))
	require.Equal(t, 40, strings.Count(r.out, "and an end\n"))
	require.Equal(t, 40*len("one line\nand an end\n"), len(r.out))
}

func TestConsumeStopsWhenItCannotPrint(t *testing.T) {
	t.Parallel()
	f := newFixture(t, jetstream.ConsumerConfig{AckWait: time.Minute})
	f.publish(t, numbers(20)...)
	var errOut buffer
	code := execute(t.Context(), []string{"consume", "S", "c", "-q", "--nats", f.url}, nil, &closing{after: 5}, &errOut)
	require.Equal(t, cli.ExitError, code)
	require.True(t, strings.HasSuffix(errOut.String(), "jetpull: write the output: the reader has gone\n"), errOut.String())
	r := f.run(t, "consume", "S", "c", "--idle", "3s", "-q", "--raw")
	require.Equal(t, cli.ExitDone, r.code, r.err)
	require.Len(t, strings.Fields(r.out), 15, "what was not printed comes again, and nothing else")
	f.settled(t, 20)
}

func TestConsumeOrderedBy(t *testing.T) {
	f := newFixture(t, jetstream.ConsumerConfig{})
	f.publish(t, numbers(50)...)
	for _, by := range []string{"subject", "header:X-Kind"} {
		r := f.run(t, "consume", "S", "c", "--count", "25", "-q", "--raw", "--concurrency", "4", "--ordered-by", by)
		require.Equal(t, cli.ExitDone, r.code, r.err)
		require.Len(t, strings.Fields(r.out), 25)
	}
	f.settled(t, 50)
}

func TestConsumeRefusesWhatTheLibraryRefuses(t *testing.T) {
	f := newFixture(t, jetstream.ConsumerConfig{MaxDeliver: 3})
	for flag, value := range map[string]string{
		"--concurrency": "0", "--prefetch": "0", "--max-attempts": "4", "--retry-delays": "-1s", "--dead-letter": "",
	} {
		r := f.run(t, "consume", "S", "c", flag, value)
		require.Equal(t, cli.ExitUsage, r.code, "%s %s: %s", flag, value, r.err)
	}
}

// TestConsumeIdleAndInterrupted interrupts a run with --idle before it has ended by
// itself: with no message yet, and with one.
func TestConsumeIdleAndInterrupted(t *testing.T) {
	for n, handled := range []string{"0 messages", "1 message"} {
		f := newFixture(t, jetstream.ConsumerConfig{})
		out, errOut, stop := f.start(t, "consume", "S", "c", "--idle", "1m", "--raw")
		f.publish(t, numbers(n)...)
		require.Eventually(t, func() bool {
			return strings.Count(out.String(), "\n") == n && f.info(t).NumWaiting > 0
		}, 10*time.Second, 5*time.Millisecond)
		require.Equal(t, cli.ExitInterrupted, stop(), errOut.String())
		require.Contains(t, errOut.String(), "interrupted after "+handled+"\n")
	}
}

// The words for the outcome of a message are the same in the lines of --json, in the log and in the summary, and each is what has happened.
func TestConsumeOutcomes(t *testing.T) {
	t.Parallel()
	needShell(t)
	for name, tt := range map[string]struct {
		consumer jetstream.ConsumerConfig
		flags    string
		outcomes []string
		logged   string
		tally    consumecmd.Tally
	}{
		"one attempt":   {flags: "--max-attempts 1", outcomes: []string{"terminated"}, logged: "terminated", tally: consumecmd.Tally{Terminated: 1}},
		"two attempts":  {flags: "--max-attempts 2", outcomes: []string{"retried", "terminated"}, logged: "terminated", tally: consumecmd.Tally{Retried: 1, Terminated: 1}},
		"a dead letter": {flags: "--max-attempts 1 --dead-letter dead", outcomes: []string{"dead_lettered"}, logged: "dead_lettered", tally: consumecmd.Tally{DeadLettered: 1}},
		"in order":      {flags: "--max-attempts 2 --ordered-by subject", outcomes: []string{"retried", "terminated"}, tally: consumecmd.Tally{Retried: 1, Terminated: 1}},
		"last delivery": {consumer: jetstream.ConsumerConfig{MaxDeliver: 1}, outcomes: []string{"handed_back"}, logged: "handed_back", tally: consumecmd.Tally{HandedBack: 1}},
		"no acks":       {consumer: jetstream.ConsumerConfig{AckPolicy: jetstream.AckNonePolicy}, outcomes: []string{"failed"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, tt.consumer)
			_, err := f.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "DEAD", Subjects: []string{"dead"}})
			require.NoError(t, err)
			f.publish(t, "one")
			args := []string{"consume", "S", "c", "--idle", "1s", "--json"}
			if strings.Contains(tt.flags, "--max-attempts 2") {
				args = append(args, "--retry-delays", "10ms")
			}
			r := f.run(t, append(append(args, strings.Fields(tt.flags)...), "--", "sh", "-c", "exit 7")...)
			require.Equal(t, cli.ExitFailed, r.code, r.err)
			var outcomes []string
			for _, line := range jsonLines[perform.Result](t, r.out) {
				outcomes = append(outcomes, line.Outcome)
				require.Equal(t, 7, *line.Exit)
				require.Contains(t, line.Error, "exit status 7")
				require.Equal(t, line.Outcome == "retried", line.Delay != nil)
			}
			require.Equal(t, tt.outcomes, outcomes)
			if tt.logged != "" {
				require.Contains(t, r.err, `"outcome":"`+tt.logged+`"`)
			}
			for line := range strings.Lines(r.err) {
				if strings.HasPrefix(line, `{"acknowledged"`) {
					got := jsonLines[consumecmd.Tally](t, line)[0]
					got.Seconds = 0
					require.Equal(t, tt.tally, got)
				}
			}
		})
	}
}
