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

// handler notes what it is given, takes d for each, and does
// not fail.
func (c *checker) handler(d time.Duration) jetpull.Handler {
	return c.noting(func(*jetpull.Msg) error {
		if d > 0 {
			<-time.After(d)
		}
		return nil
	})
}

// noting is a handler that notes what it is given, and what f makes
// of it.
func (c *checker) noting(f func(*jetpull.Msg) error) jetpull.Handler {
	return func(_ context.Context, m *jetpull.Msg) error {
		c.Begin(c.key(m), m.Sequence(), m.Delivered())
		err := f(m)
		c.End(c.key(m), m.Sequence(), err)
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

// check fails the test if something is wrong with the history.
func (c *checker) check(t *testing.T, total int) {
	t.Helper()
	require.Empty(t, c.Verdict(total))
	t.Log(c.History)
}

const feedKeys = 7

// feed publishes messages with changing keys at about the given rate per second, each
// exactly once, until it is stopped; that returns how many there are.
func feed(t *testing.T, js jetstream.JetStream, rate int) (stop func() int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	total := make(chan int, 1)
	go func() {
		n := 0
		defer func() { total <- n }()
		tick := time.NewTicker(time.Second / time.Duration(rate))
		defer tick.Stop()
		for ; ctx.Err() == nil && publishOnce(t, js, fmt.Sprintf("s.k%d", n%feedKeys), fmt.Sprint(n+1)); n++ {
			<-tick.C
		}
	}()
	return func() int {
		cancel()
		return receive(t, total, "the end of publishing")
	}
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

// consuming is a Consume on a goroutine.
type consuming struct {
	stop context.CancelFunc
	done chan error
}

func consume(t *testing.T, sub *jetpull.Subscription, h jetpull.Handler, opts ...jetpull.ConsumeOption) *consuming {
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
