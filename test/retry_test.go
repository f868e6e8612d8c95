package test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/internal/natstest/model"
)

// calls are the calls of a handler, in virtual time.
type calls struct {
	mu        sync.Mutex
	at        map[uint64][]time.Time
	delivered map[uint64][]uint64
}

// fails is a handler that notes its calls and fails the first n of each message.
func (c *calls) fails(n int, err error) jetpull.Handler {
	return func(_ context.Context, m *jetpull.Msg) error {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.at == nil {
			c.at, c.delivered = map[uint64][]time.Time{}, map[uint64][]uint64{}
		}
		seq := m.Sequence()
		c.at[seq] = append(c.at[seq], time.Now())
		c.delivered[seq] = append(c.delivered[seq], m.Delivered())
		if len(c.at[seq]) > n {
			return nil
		}
		return err
	}
}

func (c *calls) len() (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, at := range c.at {
		n += len(at)
	}
	return n
}

// gaps are the times between the calls for one message.
func (c *calls) gaps(seq uint64) (gaps []time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := 1; i < len(c.at[seq]); i++ {
		gaps = append(gaps, c.at[seq][i].Sub(c.at[seq][i-1]))
	}
	return gaps
}

var errNoUse = errors.New("no use")

func seconds(n ...int) (d []time.Duration) {
	for _, n := range n {
		d = append(d, time.Duration(n)*time.Second)
	}
	return d
}

func TestRetryDelays(t *testing.T) {
	for _, tc := range []struct {
		name   string
		cfg    jetstream.ConsumerConfig
		opts   []jetpull.Option
		err    error
		gaps   []time.Duration
		jitter float64       // the share by which a gap may differ
		late   time.Duration // of a NAK: the server adds what BackOff grows by
	}{
		{name: "by default", gaps: seconds(1, 2, 4, 8, 16, 32, 60, 60), jitter: 0.25},
		{
			name: "the consumer's BackOff", cfg: jetstream.ConsumerConfig{BackOff: seconds(2, 5)},
			gaps: seconds(2, 5, 5), late: 3 * time.Second,
		},
		{
			name: "RetryDelays before BackOff", cfg: jetstream.ConsumerConfig{BackOff: seconds(20)},
			opts: []jetpull.Option{jetpull.RetryDelays(seconds(3, 7)...)}, gaps: seconds(3, 7, 7),
		},
		{name: "at once", opts: []jetpull.Option{jetpull.RetryDelays(0)}, gaps: seconds(0, 0, 0, 0, 0, 0, 0, 0)},
		{name: "Retry", err: jetpull.Retry(4*time.Second, errNoUse), gaps: seconds(4, 4)},
	} {
		for name, opts := range map[string][]jetpull.Option{"": nil, ", ordered by key": {byKey, jetpull.KeepAlive(false)}} {
			t.Run(tc.name+name, func(t *testing.T) {
				virtually(t, tc.cfg, func(t *testing.T, w *world) {
					if tc.err == nil {
						tc.err = errNoUse
					}
					var c calls
					run := consume(t, w.sub, c.fails(len(tc.gaps), tc.err), append(opts, tc.opts...)...)
					w.publish("s.a", 1)
					w.until(func() bool { return c.len() > len(tc.gaps) }, "all calls")
					run.end(t)
					w.settled()
					for i, got := range c.gaps(1) {
						off := slack + time.Duration(tc.jitter*float64(tc.gaps[i]))
						require.GreaterOrEqual(t, got, tc.gaps[i]-off, "gap %d of %v", i+1, c.gaps(1))
						if opts == nil {
							off += tc.late
						}
						require.LessOrEqual(t, got, tc.gaps[i]+off, "gap %d of %v", i+1, c.gaps(1))
					}
					for i, n := range c.delivered[1] {
						if opts == nil {
							require.EqualValues(t, i+1, n, "the server counts each try")
							continue
						}
						require.EqualValues(t, 1, n, "it stays with the client")
						require.Empty(t, w.events(1, model.Naked, model.Overdue))
					}
				})
			})
		}
	}
}

// Messages that failed at the same time are not tried again at the same time.
func TestDefaultRetryDelaysAreSpread(t *testing.T) {
	const messages = 20
	virtually(t, jetstream.ConsumerConfig{}, func(t *testing.T, w *world) {
		var c calls
		w.publish("s.a", messages)
		run := consume(t, w.sub, c.fails(1, errNoUse), jetpull.Concurrency(messages))
		w.until(func() bool { return c.len() == 2*messages }, "each is tried twice")
		run.end(t)
		gaps := map[time.Duration]bool{}
		for seq := range uint64(messages) {
			gaps[c.gaps(seq + 1)[0].Round(10*time.Millisecond)] = true
		}
		require.Greater(t, len(gaps), messages/4, "%v", gaps)
	})
}

// The server's deliveries and the tries in place count as one.
func TestMaxAttemptsOfAnOrderedKey(t *testing.T) {
	virtually(t, jetstream.ConsumerConfig{}, func(t *testing.T, w *world) {
		w.publish("s.a", 2)
		for range 2 { // deliveries that no handler of Consume has
			m, err := w.sub.Next(t.Context())
			require.NoError(t, err)
			require.EqualValues(t, 1, m.Sequence())
			require.NoError(t, m.Nak())
		}
		var c calls
		run := consume(t, w.sub, c.fails(10, errNoUse), byKey, jetpull.MaxAttempts(5), jetpull.DeadLetter("dead.s"))
		w.settled()
		run.end(t)
		require.Len(t, c.at[1], 3)
		require.Len(t, c.at[2], 5)
		require.False(t, c.at[2][0].Before(c.at[1][2]), "the second of the key waits for the first")
		require.Equal(t, 2, w.model.Messages("DEAD"))
		for seq := range uint64(2) {
			require.Equal(t, "5", w.model.Header("DEAD", seq+1, jetpull.HeaderDeadAttempts))
		}
	})
}

// A handler that always fails is no hot loop on a real server either.
func TestAFailedHandlerIsNotCalledAgainAtOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	sub := r.subscribe(t, jetstream.ConsumerConfig{})
	r.publish(t, 1)
	second := make(chan time.Duration, 1)
	run := consume(t, sub, func(_ context.Context, m *jetpull.Msg) error {
		if m.Delivered() == 1 {
			return errNoUse
		}
		meta, err := m.Metadata()
		if err != nil {
			return fmt.Errorf("metadata: %w", err)
		}
		second <- time.Since(meta.Timestamp)
		return nil
	})
	require.GreaterOrEqual(t, receive(t, second, "the second call"), 800*time.Millisecond, "since the message was stored")
	run.end(t)
}
