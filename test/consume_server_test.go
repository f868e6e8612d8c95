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
	"github.com/jetpull/jetpull/internal/natstest"
)

// The tests here hold Consume against what a real server does in the states
// that a consumer can be in.

func TestConsumeEndsOrWaitsWithItsConsumer(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	cfg := jetstream.ConsumerConfig{DeliverPolicy: jetstream.DeliverNewPolicy}
	sub := r.subscribe(t, cfg)
	c := newChecker()
	ends := consume(t, sub, c.handler(0))
	waits := consume(t, sub, c.handler(0), jetpull.AwaitConsumer())
	r.waiting(t, 2)
	require.NoError(t, r.js.DeleteConsumer(t.Context(), "S", "C"))
	require.ErrorIs(t, receive(t, ends.done, "end of Consume"), jetpull.ErrConsumerDeleted)
	for round := range 2 {
		before := sub.Stats().Pulls
		<-time.After(1500 * time.Millisecond) // a while without a consumer
		require.LessOrEqual(t, sub.Stats().Pulls-before, uint64(10), "requests while there is none")
		r.consumer(t, cfg)
		created := time.Now()
		r.publish(t, 10)
		c.wait(t, 10*(round+1), patience)
		require.Less(t, time.Since(created), time.Second+reconnecting)
		require.NoError(t, r.js.DeleteConsumer(t.Context(), "S", "C"))
	}
	require.Empty(t, waits.done)
	waits.end(t)
	c.check(t, 20)
}

func TestConsumeOfAPausedConsumer(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	sub := r.subscribe(t, jetstream.ConsumerConfig{})
	c := newChecker()
	run := consume(t, sub, c.handler(0))
	r.publish(t, 10)
	c.wait(t, 10, patience)
	for range 2 {
		until := time.Now().Add(1500 * time.Millisecond)
		_, err := r.js.PauseConsumer(t.Context(), "S", "C", until)
		require.NoError(t, err)
		n := c.count()
		r.publish(t, 10)
		pulls := sub.Stats().Pulls
		c.wait(t, n+10, patience)
		require.False(t, time.Now().Before(until), "a paused consumer delivers nothing")
		require.Less(t, time.Since(until), time.Second+reconnecting, "it goes on when the pause ends")
		require.LessOrEqual(t, sub.Stats().Pulls-pulls, uint64(5))
	}
	run.end(t)
	c.check(t, 30)
}

func TestConsumeDeadLetters(t *testing.T) {
	t.Parallel()
	const messages = 40
	r := newRig(t)
	natstest.Stream(t, r.js, "DEAD", "dead.>")
	sub := r.subscribe(t, jetstream.ConsumerConfig{MaxDeliver: 3})
	for i := range messages {
		require.True(t, publishOnce(t, r.js, "s.a", fmt.Sprint(i+1)))
	}
	var tries tally
	run := consume(t, sub, func(_ context.Context, m *jetpull.Msg) error {
		tries.add(string(m.Data()))
		if m.Sequence()%4 == 0 {
			return errors.New("no good")
		}
		return nil
	}, jetpull.Concurrency(3), jetpull.MaxAttempts(3), jetpull.DeadLetter("dead.letters"), jetpull.RetryDelays(0, 50*time.Millisecond))
	consumerHas(t, r.js, "S", "C", func(i *jetstream.ConsumerInfo) bool { return i.AckFloor.Stream == messages }, "all are settled")
	run.end(t)
	require.Equal(t, messages, tries.len())
	dead, err := r.js.Stream(t.Context(), "DEAD")
	require.NoError(t, err)
	require.EqualValues(t, messages/4, dead.CachedInfo().State.Msgs)
	seen := map[string]bool{}
	for seq := range uint64(messages / 4) {
		m, err := dead.GetMsg(t.Context(), seq+1)
		require.NoError(t, err)
		of := m.Header.Get(jetpull.HeaderDeadSequence)
		require.Equal(t, of, string(m.Data), "payload of the original")
		require.Equal(t, of, m.Header.Get(jetpull.HeaderDeadMsgID))
		require.Equal(t, "no good", m.Header.Get(jetpull.HeaderDeadReason))
		require.Equal(t, "3", m.Header.Get(jetpull.HeaderDeadAttempts))
		require.Equal(t, "S C s.a", m.Header.Get(jetpull.HeaderDeadStream)+" "+m.Header.Get(jetpull.HeaderDeadConsumer)+" "+m.Header.Get(jetpull.HeaderDeadSubject))
		require.False(t, seen[of], "message %s has two dead letters", of)
		seen[of] = true
	}
}

func TestConsumeRefusesADeadLetterLoop(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	sub := r.subscribe(t, jetstream.ConsumerConfig{})
	nothing := func(context.Context, *jetpull.Msg) error { return nil }
	for subject, says := range map[string]string{"s.dead": "loop", "nobody.stores": "no stream"} {
		err := sub.Consume(t.Context(), nothing, jetpull.MaxAttempts(1), jetpull.DeadLetter(subject))
		require.ErrorIs(t, err, jetpull.ErrInvalidOption)
		require.ErrorContains(t, err, says)
	}
}

// TestConsumeOrderWithFailures: a message that fails holds back its key, on a
// real server and with many workers.
func TestConsumeOrderWithFailures(t *testing.T) {
	t.Parallel()
	const messages, keys = 2000, 20
	r := newRig(t)
	sub := r.subscribe(t, jetstream.ConsumerConfig{MaxAckPending: -1})
	for i := range messages {
		_, err := r.js.PublishAsync(fmt.Sprintf("s.k%d", i%keys), fmt.Append(nil, i+1))
		require.NoError(t, err)
	}
	<-r.js.PublishAsyncComplete()
	var mu sync.Mutex
	last, handled := map[string]uint64{}, 0
	run := consume(t, sub, func(_ context.Context, m *jetpull.Msg) error {
		mu.Lock()
		defer mu.Unlock()
		if m.Delivered() == 1 && m.Sequence()%13 == 0 {
			return jetpull.Retry(time.Duration(m.Sequence()%3)*20*time.Millisecond, errors.New("once"))
		}
		if m.Sequence() <= last[m.Subject()] {
			t.Errorf("key %s: %d after %d", m.Subject(), m.Sequence(), last[m.Subject()])
		}
		last[m.Subject()] = m.Sequence()
		handled++
		return nil
	}, jetpull.Concurrency(8), byKey)
	consumerHas(t, r.js, "S", "C", func(i *jetstream.ConsumerInfo) bool { return i.AckFloor.Stream == messages }, "all are acknowledged")
	run.end(t)
	require.Equal(t, messages, handled)
}

// TestConsumeAckAllCrash: what a crash repeats is bounded by the run that was
// not acknowledged yet.
func TestConsumeAckAllCrash(t *testing.T) {
	t.Parallel()
	const messages, run = 5000, 128
	r := newRig(t)
	r.consumer(t, jetstream.ConsumerConfig{AckPolicy: jetstream.AckAllPolicy, AckWait: time.Second, MaxAckPending: -1})
	r.publish(t, messages)
	book := keepLedger(t, r.nc, jetstream.AckAllPolicy)
	c := newChecker()
	for crash := range 3 {
		nc := connect(t, r.server.URL())
		sub, err := jetpull.Subscribe(t.Context(), natstest.JetStream(t, nc), "S", "C")
		require.NoError(t, err)
		running := consume(t, sub, c.handler(100*time.Microsecond))
		c.wait(t, 500*(crash+1), patience)
		clients := r.server.Unwrap().NumClients()
		nc.Close()
		require.ErrorIs(t, receive(t, running.done, "end with the connection"), jetpull.ErrClosed)
		r.fewerClients(t, clients)
		again := c.Fault(c.inFlight(t, r.js, book))
		require.LessOrEqual(t, again, run+1, "the run, and the message at which it was")
	}
	last := consume(t, subscribe(t, r.js, "S", "C"), c.handler(0))
	c.wait(t, messages, patience)
	r.ackPending(t, 0)
	last.end(t)
	c.check(t, messages)
}
