package client

import (
	"context"
	"encoding/binary"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

type noClock struct{}

func (noClock) ResetTimer() {}
func (noClock) StopTimer()  {}

// TestBenchmarksRun runs each benchmark with a few messages.
func TestBenchmarksRun(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	require.NoError(t, err)
	out, err := exec.CommandContext(t.Context(), self, "-test.short", "-test.run", "^$", "-test.bench", ".", "-test.benchtime", "20x").CombinedOutput()
	require.NoError(t, err, "%s", out)
	for _, name := range []string{
		"Next/goroutines=1", "Next/goroutines=64", "AckNext/link=loopback", "Fetch/batch=1000", "ConfirmAcks/link=5ms",
		"Consume/acks=none", "Consume/link=5ms", "Consume/handlers=64", "Messages/link=loopback",
	} {
		assert.Contains(t, string(out), "Benchmark"+name+"/client=nats.go")
		assert.Contains(t, string(out), "Benchmark"+name+"/client=jetpull")
	}
	for _, name := range []string{"Next/goroutines=8", "AckNext/link=loopback", "Fetch/batch=10"} {
		assert.Contains(t, string(out), "Benchmark"+name+"/client=ChanSubscribe")
	}
	assert.Contains(t, string(out), "cpu-ns/op")
	assert.Contains(t, string(out), "allocs/op")
}

func TestSlowHandlerCountsItsCalls(t *testing.T) {
	t.Parallel()
	for name, run := range map[string]work{"nats.go": natsSlowHandler, "jetpull": oursSlowHandler} {
		r, err := play(t.Context(), noClock{}, 5, workload{duplicates: true}, run)
		require.NoError(t, err, name)
		assert.Equal(t, 5, r.receipts.calls(), name)
	}
}

// TestConfirmHoldsMoreThanTheDefault plays rounds with more messages than the server's default of MaxAckPending.
func TestConfirmHoldsMoreThanTheDefault(t *testing.T) {
	t.Parallel()
	for name, run := range map[string]work{"nats.go": natsDoubleAck, "jetpull": oursConfirm} {
		_, err := play(t.Context(), noClock{}, 1_100, workload{config: acksHeld}, run)
		require.NoError(t, err, name)
	}
}

// TestACheatFails plays rounds with clients that skip work. The check of each round detects that.
func TestACheatFails(t *testing.T) {
	t.Parallel()
	read := func(ack, twice bool, n int) work {
		return func(ctx context.Context, r *round) error {
			consumer, err := r.consumer(ctx)
			if err != nil {
				return err
			}
			r.start()
			batch, err := consumer.Fetch(n)
			if err != nil {
				return err
			}
			for m := range batch.Messages() {
				r.receive(m.Data())
				if twice {
					r.receive(m.Data())
				}
				if ack {
					_ = m.Ack()
				}
			}
			return r.stop(ctx)
		}
	}
	for name, tt := range map[string]struct {
		run  work
		want string
	}{
		"reads too little":    {read(true, false, 9), "received 9 of 10 messages"},
		"counts a read twice": {read(true, true, 10), "more than once"},
		"fails by itself":     {func(context.Context, *round) error { return errors.New("no such luck") }, "no such luck"},
		"leaves acks out":     {read(false, false, 10), "10 not acknowledged at the end: not settled after 100ms"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := play(t.Context(), noClock{}, 10, workload{settle: 100 * time.Millisecond}, tt.run)
			require.ErrorContains(t, err, tt.want)
		})
	}
}

func TestSlowLinkDelaysBothWays(t *testing.T) {
	js, err := server.connect(true)
	require.NoError(t, err)
	defer js.Conn().Close()
	rtt, err := js.Conn().RTT()
	require.NoError(t, err)
	assert.GreaterOrEqual(t, rtt, 2*slowLinkDelay)
}

func indexed(i int) []byte { return binary.BigEndian.AppendUint64(nil, uint64(i)) }

func TestReceiptsCatchWhatIsWrong(t *testing.T) {
	for name, tt := range map[string]struct {
		payloads [][]byte
		once     bool
		want     string
	}{
		"clean":                         {[][]byte{indexed(1), indexed(0)}, true, ""},
		"duplicate where it is allowed": {[][]byte{indexed(0), indexed(1), indexed(1)}, false, ""},
		"lost":                          {[][]byte{indexed(0)}, true, "received 1 of 2 messages"},
		"duplicate":                     {[][]byte{indexed(0), indexed(1), indexed(1)}, true, "received 1 of 2 messages more than once"},
		"out of range":                  {[][]byte{indexed(0), indexed(1), indexed(2)}, true, "1 payloads that are not of this round"},
		"short payload":                 {[][]byte{indexed(0), indexed(1), []byte("x")}, false, "1 payloads that are not of this round"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newReceipts(2)
			for _, p := range tt.payloads {
				r.mark(p)
			}
			if tt.want == "" {
				require.NoError(t, r.check(tt.once))
				assert.Equal(t, len(tt.payloads), r.calls())
				return
			}
			assert.ErrorContains(t, r.check(tt.once), tt.want)
		})
	}
}

func TestMarkDoesNotAllocate(t *testing.T) {
	r, payload := newReceipts(1_000), indexed(7)
	assert.Zero(t, testing.AllocsPerRun(100, func() { r.mark(payload) }))
}

// TestServerEndsWithItsParent ends a process that started a server, and checks that the server's store is removed.
func TestServerEndsWithItsParent(t *testing.T) {
	dir := t.TempDir()
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), self, "-test.run", "^TestSlowLinkDelaysBothWays$")
	cmd.Env = append(os.Environ(), "TMPDIR="+dir)
	out, err := cmd.CombinedOutput() // also waits until the server has closed its standard error
	require.NoError(t, err, "%s", out)
	assert.True(t, strings.Contains(string(out), "PASS"), "%s", out)
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Empty(t, left, "the store is removed")
}
