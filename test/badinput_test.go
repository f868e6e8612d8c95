package test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"path"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/internal/natstest"
)

// The tests of this file count goroutines, so none of them is parallel.

// libraryGoroutines is how many goroutines run code of the package now.
func libraryGoroutines() int {
	stacks := make([]byte, 1<<20)
	for {
		n := runtime.Stack(stacks, true)
		if n < len(stacks) {
			stacks = stacks[:n]
			break
		}
		stacks = make([]byte, 2*len(stacks))
	}
	count := 0
	for stack := range bytes.SplitSeq(stacks, []byte("\n\n")) {
		if slices.ContainsFunc(clientDirs, func(dir string) bool { return bytes.Contains(stack, []byte(path.Join(module, dir)+".")) }) {
			count++
		}
	}
	return count
}

// footprint is what a refused call must leave as it was.
type footprint struct {
	Subscriptions, Goroutines int
	Stats                     jetpull.Stats
}

func footprintOf(nc *nats.Conn, sub *jetpull.Subscription) footprint {
	f := footprint{Subscriptions: nc.NumSubscriptions(), Goroutines: libraryGoroutines()}
	if sub != nil {
		f.Stats = sub.Stats()
	}
	return f
}

func requireFootprint(t *testing.T, want footprint, nc *nats.Conn, sub *jetpull.Subscription) {
	t.Helper()
	eventually(t, func() error {
		if got := footprintOf(nc, sub); !assert.ObjectsAreEqual(want, got) {
			return fmt.Errorf("%+v, before it was %+v", got, want)
		}
		return nil
	}, "nothing is left behind")
}

func TestBadArgumentsOfCallsAreRefused(t *testing.T) {
	r := newRig(t)
	sub := r.subscribe(t, jetstream.ConsumerConfig{})
	r.publish(t, 3)
	r.pending(t, 3) // or Next makes a long pull, whose inbox may go only after it
	m := next(t, sub)
	before := footprintOf(r.nc, sub)
	fetchN := func(n int) func() error {
		return func() error { _, err := sub.Fetch(t.Context(), n); return err }
	}
	var none context.Context
	// all is an ErrInvalidOption only if each error is.
	all := func(errs ...error) error {
		for i, err := range errs {
			if !errors.Is(err, jetpull.ErrInvalidOption) {
				return fmt.Errorf("error %d: %w", i, err)
			}
		}
		return errors.Join(errs...)
	}
	for _, tc := range []struct {
		name  string
		try   func() error
		names string
	}{
		{"fetch 0", fetchN(0), "n"},
		{"fetch -1", fetchN(-1), "n"},
		{"fetch min", fetchN(math.MinInt), "n"},
		{"fetch max", fetchN(math.MaxInt), "n"},
		{"FillBatch for Next", func() error { _, err := sub.Next(t.Context(), jetpull.FillBatch()); return err }, "FillBatch"},
		{"Concurrency for Fetch", func() error { _, err := sub.Fetch(t.Context(), 1, jetpull.Concurrency(2)); return err }, "Concurrency"},
		{"Heartbeat of a call that does not wait", func() error {
			_, err := sub.Next(t.Context(), jetpull.NoWait(), jetpull.Heartbeat(time.Second))
			return err
		}, "Heartbeat"},
		{"Prefetch for Next", func() error { _, err := sub.Next(t.Context(), jetpull.Prefetch(2)); return err }, "Prefetch"},
		{"FillBatch for AckNext", func() error { _, err := m.AckNext(t.Context(), jetpull.FillBatch()); return err }, "FillBatch"},
		{"nil context", func() error {
			_, subscribed := jetpull.Subscribe(none, r.js, "S", "C")
			_, got := sub.Next(none)
			_, fetched := sub.Fetch(none, 1)
			_, acked := m.AckNext(none)
			_, read := sub.Info(none)
			return all(subscribed, got, fetched, acked, m.DoubleAck(none), jetpull.ConfirmAcks(none, m), read, sub.Consume(none, nothing),
				sub.Close(none), sub.Unpin(none), jetpull.Unpin(none, r.js, "S", "C", "A"), firstError(none, r.js, "S"))
		}, "ctx"},
		{"nil handler", func() error { return sub.Consume(t.Context(), nil) }, "handler"},
		{"bad stream for Advisories", func() error { return firstError(t.Context(), r.js, "S.*") }, "stream"},
		{"nil message for ConfirmAcks", func() error { return jetpull.ConfirmAcks(t.Context(), m, nil) }, "msgs"},
		{"empty message for ConfirmAcks", func() error { return jetpull.ConfirmAcks(t.Context(), &jetpull.Msg{}) }, "msgs"},
		{"nil js for Subscribe", func() error { _, err := jetpull.Subscribe(t.Context(), nil, "S", "C"); return err }, "js"},
		{"nil js for Unpin", func() error { return jetpull.Unpin(t.Context(), nil, "S", "C", "A") }, "js"},
		{"nil js for Advisories", func() error { return firstError(t.Context(), nil, "S") }, "js"},
		{"no stream name", func() error { _, err := jetpull.Subscribe(t.Context(), r.js, "", "C"); return err }, "stream"},
		{"no consumer name", func() error { _, err := jetpull.Subscribe(t.Context(), r.js, "S", ""); return err }, "consumer"},
		{"wildcard for a consumer", func() error { _, err := jetpull.Subscribe(t.Context(), r.js, "S", "*"); return err }, "consumer"},
		{"two tokens for a stream", func() error { _, err := jetpull.Subscribe(t.Context(), r.js, "S.T", "C"); return err }, "stream"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			err := tc.try()
			requireIs(t, err, jetpull.ErrInvalidOption, jetstream.ErrInvalidOption)
			require.ErrorContains(t, err, tc.names)
			requireFootprint(t, before, r.nc, sub)
		})
	}
	require.NoError(t, m.DoubleAck(t.Context()), "no refused call has settled the message")
	requireBodies(t, fetch(t, sub, 10), "2", "3")
}

func firstError(ctx context.Context, js jetstream.JetStream, stream string) error {
	for _, err := range jetpull.Advisories(ctx, js, stream, "C") {
		return err
	}
	return errors.New("the advisories ended without an error")
}

// TestSubscribeRefuses what cannot work with the consumer as it is, and says what to do
// instead.
func TestSubscribeRefuses(t *testing.T) {
	r := newRig(t)
	_, err := r.js.CreatePushConsumer(t.Context(), "S", jetstream.ConsumerConfig{Durable: "PUSH", DeliverSubject: "push"})
	require.NoError(t, err)
	overflow := priorityConsumer(jetstream.PriorityPolicyOverflow, "A", "B")
	overflow.Durable = "GROUPS"
	r.consumer(t, overflow)
	edge, err := jetstream.NewWithDomain(r.nc, "edge")
	require.NoError(t, err)
	_, err = jetpull.Subscribe(t.Context(), edge, "S", "PUSH")
	requireIs(t, err, jetpull.ErrNoResponders)
	require.ErrorContains(t, err, "$JS.edge.API.")
	_, err = jetpull.Subscribe(t.Context(), r.js, "NOPE", "C")
	requireIs(t, err, jetstream.ErrStreamNotFound)
	require.ErrorContains(t, err, `"NOPE"`)
	before := footprintOf(r.nc, nil)
	for consumer, tc := range map[string]struct {
		is   error
		says []string
	}{
		"PUSH":   {jetpull.ErrNotPull, []string{"DeliverSubject"}},
		"GROUPS": {jetpull.ErrInvalidOption, []string{`["A" "B"]`}},
		"NOPE":   {jetstream.ErrConsumerNotFound, []string{"NOPE"}},
	} {
		_, err := jetpull.Subscribe(t.Context(), r.js, "S", consumer)
		requireIs(t, err, tc.is)
		for _, text := range tc.says {
			require.ErrorContains(t, err, text)
		}
		requireFootprint(t, before, r.nc, nil)
	}
	own, err := r.js.CreateConsumer(t.Context(), "S", jetstream.ConsumerConfig{
		Name: "own", AckPolicy: jetstream.AckNonePolicy, MemoryStorage: true, Replicas: 1, InactiveThreshold: time.Minute,
	})
	require.NoError(t, err)
	sub := subscribe(t, r.js, "S", own.CachedInfo().Name)
	r.publish(t, 1)
	m := next(t, sub)
	_, err = m.AckNext(t.Context())
	requireIs(t, err, jetpull.ErrInvalidOption)
	require.ErrorContains(t, err, "AckNext", "with ack none there is nothing to acknowledge")
	requireIs(t, jetpull.ConfirmAcks(t.Context(), m), jetpull.ErrInvalidOption)
}

func TestClosedSubscription(t *testing.T) {
	r := newRig(t)
	r.consumer(t, jetstream.ConsumerConfig{AckWait: time.Minute})
	r.publish(t, 2)
	r.pending(t, 2)
	before := footprintOf(r.nc, nil)
	sub, err := jetpull.Subscribe(t.Context(), r.js, "S", "C")
	require.NoError(t, err)
	m, other := next(t, sub), next(t, sub)
	waiting := make(chan error, 2)
	go func() { _, err := sub.Fetch(t.Context(), 5, jetpull.MaxWait(forever)); waiting <- err }()
	go func() { _, err := other.AckNext(t.Context(), jetpull.MaxWait(forever)); waiting <- err }()
	r.waiting(t, 2)
	for range 2 {
		require.NoError(t, sub.Close(t.Context()), "closing twice is fine")
		requireIs(t, receive(t, waiting, "end of a call"), jetpull.ErrClosed)
	}
	r.waiting(t, 0)
	for _, n := range []int{0, 5} {
		requireIs(t, receive(t, call(t.Context(), sub, n), "refusal").err, jetpull.ErrClosed)
	}
	_, err = m.AckNext(t.Context())
	requireIs(t, err, jetpull.ErrClosed)
	require.ErrorIs(t, m.Ack(), jetstream.ErrMsgAlreadyAckd, "a message can be acknowledged after Close")
	r.ackPending(t, 0)
	requireFootprint(t, before, r.nc, nil)
}

func TestClosedConnection(t *testing.T) {
	for name, end := range map[string]func(*testing.T, *nats.Conn){
		"closed":  func(_ *testing.T, nc *nats.Conn) { nc.Close() },
		"drained": func(t *testing.T, nc *nats.Conn) { require.NoError(t, nc.Drain()) },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.consumer(t, jetstream.ConsumerConfig{})
			r.publish(t, 1)
			goroutines := libraryGoroutines()
			nc := r.server.Connect(t)
			js := natstest.JetStream(t, nc)
			sub := subscribe(t, js, "S", "C")
			m := next(t, sub)
			waiting := call(t.Context(), sub, 5, jetpull.MaxWait(forever))
			r.waiting(t, 1)
			end(t, nc)
			requireIs(t, receive(t, waiting, "end of the call").err, jetpull.ErrClosed)
			eventually(t, func() error {
				if !nc.IsClosed() {
					return errors.New("still draining")
				}
				return nil
			}, "the connection is closed")
			for _, n := range []int{0, 5} {
				requireIs(t, receive(t, call(t.Context(), sub, n, jetpull.MaxWait(forever)), "refusal").err, jetpull.ErrClosed)
			}
			_, err := m.AckNext(t.Context())
			requireIs(t, err, jetpull.ErrClosed)
			requireIs(t, m.Ack(), jetpull.ErrClosed, nats.ErrConnectionClosed)
			requireIs(t, jetpull.ConfirmAcks(t.Context(), m), jetpull.ErrClosed)
			_, err = jetpull.Subscribe(t.Context(), js, "S", "C")
			requireIs(t, err, jetpull.ErrClosed, nats.ErrConnectionClosed)
			_, err = sub.Info(t.Context())
			require.Error(t, err)
			require.NoError(t, sub.Close(t.Context()))
			eventually(t, func() error {
				if n := libraryGoroutines(); n != goroutines {
					return fmt.Errorf("%d goroutines, %d before", n, goroutines)
				}
				return nil
			}, "no goroutine is left")
		})
	}
}
