package test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/internal/natstest"
)

// checker is the history of a run under faults, with handlers that write it.
type checker struct {
	*natstest.History
	key func(*jetpull.Msg) string // in whose order messages are handled
}

func newChecker() *checker { return &checker{natstest.NewHistory(), (*jetpull.Msg).Subject} }

// noOrder is the key of messages that may be handled in any order.
func noOrder(*jetpull.Msg) string { return "" }

// handler is for one Consume. It notes what it is given, takes d for each, and does
// not fail.
func (c *checker) handler(d time.Duration) jetpull.Handler {
	return c.noting(func(*jetpull.Msg) error {
		if d > 0 {
			<-time.After(d)
		}
		return nil
	})
}

// noting is a handler for one Consume that notes what it is given, and what f makes
// of it.
func (c *checker) noting(f func(*jetpull.Msg) error) jetpull.Handler {
	run := c.Run()
	return func(_ context.Context, m *jetpull.Msg) error {
		c.Begin(run, c.key(m), m.Sequence(), m.Delivered())
		err := f(m)
		c.End(run, c.key(m), m.Sequence(), err)
		return err
	}
}

func (c *checker) count() int {
	n, _ := c.Handled()
	return n
}

// wait waits until total messages have been handled.
func (c *checker) wait(t *testing.T, total int, within time.Duration) {
	t.Helper()
	timeout := time.After(within)
	for {
		n, progress := c.Handled()
		if n >= total {
			return
		}
		select {
		case <-progress:
		case <-timeout:
			t.Fatalf("%d of %d messages were handled within %s", n, total, within)
		}
	}
}

// inFlight is what the server has delivered, or a handler had, and is not certain
// to be settled.
func (c *checker) inFlight(t *testing.T, js jetstream.JetStream) (seqs []uint64) {
	t.Helper()
	var info *jetstream.ConsumerInfo
	consumerHas(t, js, "S", "C", func(i *jetstream.ConsumerInfo) bool { info = i; return true }, "info")
	for seq := info.AckFloor.Stream + 1; seq <= max(info.Delivered.Stream, c.Highest()); seq++ {
		seqs = append(seqs, seq)
	}
	return seqs
}

// check fails the test if something is wrong with the history.
func (c *checker) check(t *testing.T, total int) {
	t.Helper()
	require.Empty(t, c.Verdict(total))
	t.Log(c.History)
}

// feeder publishes messages with changing keys until it is stopped, over a
// connection of its own, each exactly once.
type feeder struct {
	stop  chan struct{}
	total chan int
}

const feedKeys = 7

// feed starts to publish at about the given rate per second.
func feed(t *testing.T, js jetstream.JetStream, rate int) *feeder {
	t.Helper()
	f := &feeder{stop: make(chan struct{}), total: make(chan int, 1)}
	go func() {
		n := 0
		defer func() { f.total <- n }()
		tick := time.NewTicker(time.Second / time.Duration(rate))
		defer tick.Stop()
		for {
			select {
			case <-f.stop:
				return
			case <-t.Context().Done():
				return
			case <-tick.C:
			}
			if !publishOnce(t, js, fmt.Sprintf("s.k%d", n%feedKeys), fmt.Sprint(n+1)) {
				return
			}
			n++
		}
	}()
	return f
}

// publishOnce tries until the message is stored; its id lets the stream keep
// one.
func publishOnce(t *testing.T, js jetstream.JetStream, subject, id string) bool {
	for t.Context().Err() == nil {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		_, err := js.Publish(ctx, subject, []byte(id), jetstream.WithMsgID(id))
		cancel()
		if err == nil {
			return true
		}
	}
	return false
}

// end stops publishing and returns how many messages there are.
func (f *feeder) end(t *testing.T) int {
	t.Helper()
	close(f.stop)
	return receive(t, f.total, "the end of publishing")
}

// consuming is a Consume on a goroutine.
type consuming struct {
	stop context.CancelFunc
	done chan error
}

func consume(t *testing.T, sub *jetpull.Subscription, h jetpull.Handler, opts ...jetpull.Option) *consuming {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	c := &consuming{stop: stop, done: make(chan error, 1)}
	go func() { c.done <- sub.Consume(ctx, h, opts...) }()
	t.Cleanup(stop)
	return c
}

// end stops Consume, which has to end well.
func (c *consuming) end(t *testing.T) {
	t.Helper()
	c.stop()
	require.NoError(t, receive(t, c.done, "end of Consume"))
}
