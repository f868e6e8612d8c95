//go:build unix

package main

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
	"github.com/jetpull/jetpull/internal/natstest"
)

// killerAmong are the payloads of innocent messages and, among them, a killer.
func killerAmong(innocent int, killer string) (payloads []string, at uint64) {
	for range innocent {
		payloads = append(payloads, "ack")
	}
	half := innocent / 2
	return append(payloads[:half:half], append([]string{killer}, payloads[half:]...)...), uint64(half + 1)
}

// A message of which each program dies is given up after --max-crashes deaths, and no message beside it is.
func TestWorkerGivesUpTheMessageThatEndsIt(t *testing.T) {
	for name, tt := range map[string]struct {
		innocent int
		flags    []string
		want     []string // outcomes of the killer
	}{
		"alone":   {0, []string{"--max-crashes", "3"}, []string{"retried", "retried", "terminated"}},
		"among":   {64, []string{"--max-crashes", "3"}, []string{"retried", "retried", "terminated"}},
		"ordered": {4, []string{"--max-crashes", "2", "--ordered-by", "subject"}, []string{"retried", "terminated"}},
		"once":    {4, []string{"--max-crashes", "1"}, []string{"terminated"}},
	} {
		t.Run(name, func(t *testing.T) {
			payloads, killer := killerAmong(tt.innocent, "die 1000")
			r, outcomes := work(t, jetstream.ConsumerConfig{}, payloads, tt.flags...)
			require.Equal(t, cli.ExitFailed, r.code, r.err)
			require.Len(t, outcomes, len(payloads))
			for seq, of := range outcomes {
				if seq == killer {
					require.Equal(t, tt.want, of)
				} else {
					require.Equal(t, []string{"acknowledged"}, of, seq)
				}
			}
			require.Contains(t, r.out, `"its process ended `+tt.flags[1]+` times while it was handled"`)
		})
	}
}

// A program that fails to handle a message, and does not die, is not counted.
func TestWorkerFailureIsNoCrash(t *testing.T) {
	r, outcomes := work(t, jetstream.ConsumerConfig{}, []string{"nak"}, "--max-crashes", "1")
	require.Equal(t, cli.ExitDone, r.code, r.err)
	require.Equal(t, map[uint64][]string{1: {"retried", "acknowledged"}}, outcomes)
}

// A message whose command kills jetpull itself becomes a dead letter, and no message beside it does.
func TestConsumeGivesUpTheMessageThatKillsIt(t *testing.T) {
	t.Parallel()
	for name, innocent := range map[string]int{"alone": 0, "among": 64} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, jetstream.ConsumerConfig{AckWait: time.Second, AckPolicy: jetstream.AckExplicitPolicy})
			dead := natstest.Stream(t, f.js, "DEAD", "dead.>")
			payloads, killer := killerAmong(innocent, "kill")
			f.publish(t, payloads...)
			done := func() bool {
				info, err := dead.Info(t.Context())
				require.NoError(t, err)
				c := f.info(t)
				return info.State.Msgs > 0 && c.NumPending == 0 && c.NumAckPending == 0
			}
			lives := 0
			for ; !done(); lives++ {
				require.Less(t, lives, 8)
				cmd := asCommand("consume", "S", "c", "--nats", f.url, "--concurrency", "65", "--max-crashes", "2",
					"--dead-letter", "dead.s", "--", "sh", "-c", `read -r word; test "$word" != kill || kill -9 $PPID`)
				cmd.Stderr = t.Output()
				require.NoError(t, cmd.Start())
				ended := make(chan error, 1)
				go func() { ended <- cmd.Wait() }()
				require.Eventually(t, func() bool { return len(ended) > 0 || done() }, time.Minute, 20*time.Millisecond)
				_ = cmd.Process.Signal(os.Interrupt)
				<-ended
			}
			require.Equal(t, 4, lives, "two that are counted, after a first delivery, and the one that gives it up")
			info, err := dead.Info(t.Context())
			require.NoError(t, err)
			require.EqualValues(t, 1, info.State.Msgs)
			m, err := dead.GetMsg(t.Context(), 1)
			require.NoError(t, err)
			require.Equal(t, "kill", string(m.Data))
			require.Equal(t, "its process ended 2 times while it was handled", m.Header.Get(jetpull.HeaderDeadReason))
			require.Equal(t, fmt.Sprint(killer), m.Header.Get(jetpull.HeaderDeadSequence))
		})
	}
}

// The bucket of --max-crashes forgets after a day. One that exists stays as it is.
func TestCrashBucket(t *testing.T) {
	f := newFixture(t, jetstream.ConsumerConfig{})
	f.publish(t, "a", "b")
	for range 2 {
		r := f.run(t, "consume", "S", "c", "-n", "1", "--max-crashes", "3")
		require.Equal(t, cli.ExitDone, r.code, r.err)
		kv, err := f.js.KeyValue(t.Context(), "jetpull-crashes")
		require.NoError(t, err)
		status, err := kv.Status(t.Context())
		require.NoError(t, err)
		require.Equal(t, 24*time.Hour, status.TTL())
		assert.Zero(t, status.Values(), "a first delivery writes nothing")
	}
}

func TestMaxCrashesRefuses(t *testing.T) {
	f := newFixture(t, jetstream.ConsumerConfig{AckPolicy: jetstream.AckNonePolicy})
	for line, want := range map[string]string{
		"consume S c --max-crashes 0":     "--max-crashes 0 is not in 1..",
		"consume S c --max-crashes 2":     "--max-crashes: 2 has no effect: consumer \"c\" has ack policy none",
		"consume S c --dead-letter dead.": "--dead-letter \"dead.\" is not a subject",
		"consume S c --dead-letter dead":  "--dead-letter needs --max-attempts or --max-crashes",
	} {
		r := f.run(t, strings.Fields(line)...)
		require.Equal(t, cli.ExitUsage, r.code, r.err)
		require.Contains(t, r.err, want)
	}
}

// A record in the bucket that cannot be read counts nothing. A forged one has its message given up, and no other.
func TestForgedCrashes(t *testing.T) {
	f := newFixture(t, jetstream.ConsumerConfig{})
	f.publish(t, "garbage", "negative", "forged", "innocent")
	require.Equal(t, cli.ExitDone, f.run(t, "fetch", "S", "c", "-n", "4", "--settle", "nak").code)
	kv, err := f.js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: "jetpull-crashes"})
	require.NoError(t, err)
	s, err := f.js.Stream(t.Context(), "S")
	require.NoError(t, err)
	for seq, record := range map[uint64]string{1: "{", 2: `{"starts":-9}`, 3: `{"starts":99}`} {
		m, err := s.GetMsg(t.Context(), seq)
		require.NoError(t, err)
		_, err = kv.Put(t.Context(), fmt.Sprintf("S.c.%d.%d", seq, m.Time.UnixNano()), []byte(record))
		require.NoError(t, err)
	}
	r := f.run(t, "consume", "S", "c", "--idle", "1s", "--max-crashes", "2", "--json")
	require.Equal(t, cli.ExitFailed, r.code, r.err)
	require.Contains(t, r.err, `"acknowledged":3,"retried":0,"dead_lettered":0,"terminated":1,`)
	require.Contains(t, r.err, "its process ended 99 times while it was handled")
	require.NotContains(t, r.out, `"data":"forged"`)
}
