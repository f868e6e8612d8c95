package test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/internal/natstest"
)

// pinLog notes the callbacks of a subscription in their order.
type pinLog struct {
	mu     sync.Mutex
	events []string
}

func (l *pinLog) options() []jetpull.Option {
	note := func(what string) func(jetpull.PinEvent) {
		return func(e jetpull.PinEvent) {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.events = append(l.events, what+" "+e.Group+" "+e.ID)
		}
	}
	return []jetpull.Option{jetpull.Group("A"), jetpull.OnPin(note("pin")), jetpull.OnUnpin(note("unpin"))}
}

func (l *pinLog) all() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.events)
}

// require waits until the callbacks were just these.
func (l *pinLog) require(t *testing.T, want ...string) {
	t.Helper()
	eventually(t, func() error {
		if got := l.all(); len(got) < len(want) {
			return fmt.Errorf("only %q", got)
		}
		return nil
	}, "callbacks %q", want)
	require.Equal(t, want, l.all())
}

func TestPinIsGainedOnceAndSentWithEveryPull(t *testing.T) {
	t.Parallel()
	var log pinLog
	w := newTap(t, pinnedConsumer(), log.options()...)
	_, held := w.sub.Pin()
	require.False(t, held)
	w.publish(t, 20)
	w.pending(t, 20)
	m := next(t, w.sub)
	id, held := w.sub.Pin()
	require.True(t, held)
	require.NotEmpty(t, id)
	require.Equal(t, id, w.sub.Stats().Pin)
	w.sync(t)
	w.wire.Reset()
	for range 3 {
		var err error
		m, err = m.AckNext(t.Context())
		require.NoError(t, err)
	}
	ackAll(t, m, next(t, w.sub))
	for _, opts := range [][]jetpull.Option{nil, {jetpull.FillBatch()}, {jetpull.MaxBytes(1 << 20)}} {
		ackAll(t, fetch(t, w.sub, 5, opts...)...)
	}
	_, err := w.sub.Next(t.Context(), jetpull.MaxWait(200*time.Millisecond))
	requireIs(t, err, jetpull.ErrTimeout)
	sent := 0
	for _, op := range pick(w.sync(t), "PUB") {
		if body, next := strings.CutPrefix(string(op.Body), "+NXT "); next || op.Subject == nextSubject {
			pull := object(t, []byte(body))
			require.Equal(t, "A", pull["group"], "%v", pull)
			require.Equal(t, id, pull["id"], "%v", pull)
			sent++
		}
	}
	require.GreaterOrEqual(t, sent, 8)
	require.Zero(t, w.sub.Stats().Statuses[423]+w.sub.Stats().Statuses[400])
	log.require(t, "pin A "+id)
}

// A callback may take its time, and may use the subscription.
func TestPinCallbackDoesNotHoldUpMessages(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.consumer(t, pinnedConsumer())
	release, seen := make(chan struct{}), make(chan string, 1)
	var sub *jetpull.Subscription
	sub = subscribe(t, r.js, "S", "C", jetpull.Group("A"), jetpull.OnPin(func(e jetpull.PinEvent) {
		<-release
		if id, held := sub.Pin(); held && id == e.ID {
			seen <- id
		}
	}))
	r.publish(t, 20)
	for range 20 {
		ackAll(t, next(t, sub))
	}
	require.Empty(t, seen)
	close(release)
	id, _ := sub.Pin()
	require.Equal(t, id, receive(t, seen, "the callback"))
}

func TestStandbyTakesOverAfterUnpin(t *testing.T) {
	virtually(t, pinnedConsumer(), func(t *testing.T, w *world) {
		var firstLog, secondLog pinLog
		_, first := w.client(firstLog.options()...)
		_, second := w.client(secondLog.options()...)
		w.publish("s.a", 1)
		ackAll(t, next(t, first))
		firstID, _ := first.Pin()
		require.NotEmpty(t, firstID)

		// The stand-by waits first and longest, and gets nothing.
		standby := call(t.Context(), second, 0, jetpull.MaxWait(forever))
		for range 20 {
			pass(10 * time.Second)
			w.publish("s.a", 1)
			ackAll(t, next(t, first))
		}
		require.Empty(t, standby)
		require.Empty(t, secondLog.all())
		require.NoError(t, first.Unpin(t.Context()))
		w.publish("s.a", 1)
		ackAll(t, served(t, standby, "the message after the unpin")...)
		secondID, _ := second.Pin()
		require.NotEqual(t, firstID, secondID)
		secondLog.require(t, "pin A "+secondID)

		// The first learns of it with its next pull, and is a stand-by from then
		// on; the 423 is not shown.
		waiting := call(t.Context(), first, 3, jetpull.MaxWait(forever))
		pass(time.Second)
		firstLog.require(t, "pin A "+firstID, "unpin A "+firstID)
		_, held := first.Pin()
		require.False(t, held)
		w.publish("s.a", 1)
		m := next(t, second)
		require.Empty(t, waiting)

		// And back again, by AckNext on a pin that is lost meanwhile.
		require.NoError(t, second.Unpin(t.Context()))
		w.publish("s.a", 1)
		ackAll(t, served(t, waiting, "the message after the second unpin")...)
		thirdID, _ := first.Pin()
		firstLog.require(t, "pin A "+firstID, "unpin A "+firstID, "pin A "+thirdID)
		_, err := m.AckNext(t.Context(), jetpull.MaxWait(300*time.Millisecond))
		requireIs(t, err, jetpull.ErrTimeout)
		require.NotErrorIs(t, err, jetpull.ErrPinMismatch)
		secondLog.require(t, "pin A "+secondID, "unpin A "+secondID)
		w.settled()
	}, jetpull.Group("A"))
}

// listen reads the consumer's advisories until the test ends.
func listen(t *testing.T, r *rig) <-chan jetpull.PinAdvisory {
	t.Helper()
	nc := r.server.Connect(t)
	out := make(chan jetpull.PinAdvisory, 100)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for a, err := range jetpull.Advisories(ctx, natstest.JetStream(t, nc), "S", "C") {
			if err != nil {
				t.Errorf("advisory: %v", err)
			}
			out <- a
		}
	}()
	t.Cleanup(func() {
		cancel()
		receive(t, ended, "end of the advisories")
		if n := nc.NumSubscriptions(); n != 0 {
			t.Errorf("%d subscriptions are left", n)
		}
	})
	eventually(t, func() error {
		if n := nc.NumSubscriptions(); n != 2 {
			return fmt.Errorf("%d subscriptions", n)
		}
		return nil
	}, "advisories are subscribed to")
	require.NoError(t, nc.Flush())
	return out
}

func requireAdvisory(t *testing.T, advisories <-chan jetpull.PinAdvisory, want jetpull.PinAdvisory) {
	t.Helper()
	got := receive(t, advisories, "advisory")
	require.WithinDuration(t, time.Now(), got.Time, patience)
	got.Time = time.Time{}
	want.Stream, want.Consumer, want.Group = "S", "C", "A"
	require.Equal(t, want, got)
}

func TestAdvisories(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	cfg := pinnedConsumer()
	cfg.PinnedTTL = 600 * time.Millisecond
	first := r.subscribe(t, cfg, jetpull.Group("A"))
	second := subscribe(t, r.js, "S", "C", jetpull.Group("A"))
	advisories := listen(t, r)
	r.publish(t, 1)
	ackAll(t, next(t, first))
	id, _ := first.Pin()
	requireAdvisory(t, advisories, jetpull.PinAdvisory{Pinned: true, ID: id})
	require.NoError(t, first.Unpin(t.Context()))
	requireAdvisory(t, advisories, jetpull.PinAdvisory{Reason: "admin"})
	r.publish(t, 1)
	ackAll(t, next(t, first))
	id, _ = first.Pin()
	requireAdvisory(t, advisories, jetpull.PinAdvisory{Pinned: true, ID: id})
	// It pulls no more; when its time is over the stand-by is pinned.
	r.publish(t, 1)
	ackAll(t, served(t, call(t.Context(), second, 0, jetpull.MaxWait(forever)), "the message after the time-out")...)
	id, _ = second.Pin()
	requireAdvisory(t, advisories, jetpull.PinAdvisory{Reason: "timeout"})
	requireAdvisory(t, advisories, jetpull.PinAdvisory{Pinned: true, ID: id})
}

func TestAdvisoriesEndWithTheConnection(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	nc := r.server.Connect(t)
	got := make(chan error, 10)
	go func() {
		for _, err := range jetpull.Advisories(t.Context(), natstest.JetStream(t, nc), "S", "C") {
			got <- err
		}
		close(got)
	}()
	eventually(t, func() error {
		if nc.NumSubscriptions() != 2 {
			return errors.New("not subscribed yet")
		}
		return nil
	}, "advisories are subscribed to")
	nc.Close()
	requireIs(t, receive(t, got, "error"), jetpull.ErrClosed, nats.ErrConnectionClosed)
	_, more := <-got
	require.False(t, more, "one error and the end")
}

func TestUnpinErrors(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.consumer(t, pinnedConsumer())
	r.consumer(t, jetstream.ConsumerConfig{Durable: "PLAIN"})
	var api *jetstream.APIError
	for _, tc := range []struct {
		name, stream, consumer, group string
		is                            error
	}{
		{"no group given", "S", "C", "", jetpull.ErrInvalidOption},
		{"bad group name", "S", "C", "no spaces", jetpull.ErrInvalidOption},
		{"bad consumer name", "S", "C.D", "A", jetpull.ErrInvalidOption},
		{"empty stream name", "", "C", "A", jetpull.ErrInvalidOption},
		{"missing group", "S", "C", "B", nil},
		{"missing consumer", "S", "NOPE", "A", jetstream.ErrConsumerNotFound},
		{"missing stream", "NOPE", "C", "A", nil},
		{"no priority groups", "S", "PLAIN", "A", nil},
	} {
		err := jetpull.Unpin(t.Context(), r.js, tc.stream, tc.consumer, tc.group)
		if tc.is != nil {
			require.ErrorIs(t, err, tc.is, tc.name)
		} else {
			require.ErrorAs(t, err, &api, tc.name)
			require.NotZero(t, api.ErrorCode, tc.name)
		}
	}
	require.NoError(t, jetpull.Unpin(t.Context(), r.js, "S", "C", "A"), "nobody is pinned: nothing to do")
}
