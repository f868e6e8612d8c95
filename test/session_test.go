package test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/internal/natstest"
)

// consumeUntilItEnds runs Consume until the test ends, or until it ends by itself.
func consumeUntilItEnds(t *testing.T, sub *jetpull.Subscription, h jetpull.Handler, opts ...jetpull.ConsumeOption) (ended <-chan error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- sub.Consume(ctx, h, opts...) }()
	t.Cleanup(cancel)
	return done
}

// edit changes the consumer as an operator does.
func (r *rig) edit(t *testing.T, change func(*jetstream.ConsumerConfig)) {
	t.Helper()
	c, err := r.js.Consumer(t.Context(), "S", "C")
	require.NoError(t, err)
	cfg := c.CachedInfo().Config
	change(&cfg)
	_, err = r.js.UpdateConsumer(t.Context(), "S", cfg)
	require.NoError(t, err)
}

// An edit under running workers ends nothing, and takes effect for what is delivered from then on.
func TestEditsUnderRunningWorkers(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	var calls tally
	release := make(chan struct{})
	slow := func(ctx context.Context, m *jetpull.Msg) error {
		calls.add(string(m.Data()))
		select {
		case <-release:
		case <-ctx.Done():
		}
		return nil
	}
	sub := r.subscribe(t, jetstream.ConsumerConfig{AckWait: 30 * time.Second, FilterSubjects: []string{"s.a"}})
	other := subscribe(t, r.js, "S", "C")
	ended := []<-chan error{consumeUntilItEnds(t, sub, slow, jetpull.Concurrency(3)), consumeUntilItEnds(t, other, slow, jetpull.Concurrency(3))}
	consumerHas(t, r.js, "S", "C", func(i *jetstream.ConsumerInfo) bool { return i.NumWaiting >= 2 }, "the pulls of both")
	r.publish(t, 6)
	reaches(t, 6, "handlers", calls.len)
	r.edit(t, func(cfg *jetstream.ConsumerConfig) { cfg.AckWait = 2 * time.Second })
	r.edit(t, func(cfg *jetstream.ConsumerConfig) {
		cfg.Description, cfg.Metadata, cfg.MaxAckPending = "edited", map[string]string{"by": "the test"}, 4
		cfg.FilterSubjects = []string{"s.a", "s.b"}
	})
	_, err := r.js.Publish(t.Context(), "s.b", []byte("b"))
	require.NoError(t, err)
	for _, sub := range []*jetpull.Subscription{sub, other} { // by the AckWait of before they would be after 15 s
		statsBecome(t, sub, "its messages are reported in progress twice", func(s jetpull.Stats) bool { return s.InProgress >= 6 })
	}
	close(release)
	reaches(t, 7, "handlers, also of the new filter", calls.len)
	r.ackPending(t, 0)
	for n := range 6 {
		require.Equal(t, 2, calls.add(fmt.Sprint(n+1)), "handlers of message %d, and this call", n+1)
	}
	for _, sub := range []*jetpull.Subscription{sub, other} {
		require.Zero(t, sub.Stats().Redelivered)
		require.Zero(t, sub.Stats().Naks)
	}
	for _, end := range ended {
		require.Empty(t, end)
	}
}

// MaxDeliver that an operator lowers below MaxAttempts while messages fail: each has a dead letter, and Consume says why it ends.
func TestMaxDeliverLoweredUnderARunningWorker(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	dead := natstest.Stream(t, r.js, "D", "dead.>")
	sub := r.subscribe(t, jetstream.ConsumerConfig{AckWait: 30 * time.Second, MaxDeliver: 10})
	var failed atomic.Int64
	fails := func(context.Context, *jetpull.Msg) error { failed.Add(1); return errors.New("broken") }
	opts := []jetpull.ConsumeOption{jetpull.DeadLetter("dead.s"), jetpull.Concurrency(5)}
	ended := consumeUntilItEnds(t, sub, fails, append(opts, jetpull.MaxAttempts(5), jetpull.RetryDelays(time.Second))...)
	r.publish(t, 5)
	reaches(t, 5, "handlers that failed", func() int { return int(failed.Load()) })
	r.edit(t, func(cfg *jetstream.ConsumerConfig) { cfg.MaxDeliver = 2 })
	require.ErrorIs(t, receive(t, ended, "the end of Consume"), jetpull.ErrInvalidOption)
	consumeUntilItEnds(t, sub, fails, append(opts, jetpull.MaxAttempts(2))...) // for those that were handed back
	reaches(t, 5, "dead letters", func() int {
		info, err := dead.Info(t.Context())
		require.NoError(t, err)
		return int(info.State.Msgs)
	})
	r.ackPending(t, 0)
}

// A consumer that is reset under a running worker delivers again to its handler.
func TestResetUnderARunningWorker(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	sub := r.subscribe(t, jetstream.ConsumerConfig{AckWait: 30 * time.Second})
	var calls atomic.Int64
	consumeUntilItEnds(t, sub, func(context.Context, *jetpull.Msg) error { calls.Add(1); return nil }, jetpull.Concurrency(4))
	r.publish(t, 100)
	reaches(t, 100, "handlers", func() int { return int(calls.Load()) })
	r.ackPending(t, 0)
	if _, err := r.js.ResetConsumerToSequence(t.Context(), "S", "C", 1); errors.Is(err, jetstream.ErrJetStreamNotEnabled) || errors.Is(err,
		context.DeadlineExceeded) {
		t.Skip("a server before 2.14 cannot reset a consumer")
	} else {
		require.NoError(t, err)
	}
	reaches(t, 200, "handlers after the reset", func() int { return int(calls.Load()) })
	r.ackPending(t, 0)
}
