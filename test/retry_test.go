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
)

// calls are the calls of a handler, in virtual time.
type calls struct {
	mu sync.Mutex
	at map[uint64][]time.Time
}

// fails is a handler that notes its calls and fails the first n of each message.
func (c *calls) fails(n int, err error) jetpull.Handler {
	return func(_ context.Context, m *jetpull.Msg) error {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.at == nil {
			c.at = map[uint64][]time.Time{}
		}
		seq := m.Sequence()
		c.at[seq] = append(c.at[seq], time.Now())
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
