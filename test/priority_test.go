package test

import (
	"context"
	"errors"
	"fmt"
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
	return append([]string(nil), l.events...)
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
	m, err := w.sub.Next(t.Context())
	require.NoError(t, err)
	id, held := w.sub.Pin()
	require.True(t, held)
	require.NotEmpty(t, id)
	require.Equal(t, id, w.sub.Stats().Pin)
	log.require(t, "pin A "+id)
	w.sync(t)
	w.wire.Reset()

	for range 3 {
		m, err = m.AckNext(t.Context())
		require.NoError(t, err)
	}
	ackAll(t, m)
	m, err = w.sub.Next(t.Context())
	require.NoError(t, err)
	msgs, err := w.sub.Fetch(t.Context(), 5)
	require.NoError(t, err)
	require.Len(t, msgs, 5)
	ackAll(t, append(msgs, m)...)
	msgs, err = w.sub.Fetch(t.Context(), 5, jetpull.FillBatch())
	require.NoError(t, err)
	ackAll(t, msgs...)
	msgs, err = w.sub.Fetch(t.Context(), 10, jetpull.MaxBytes(1<<20))
	require.NoError(t, err)
	ackAll(t, msgs...)
	_, err = w.sub.Next(t.Context(), jetpull.MaxWait(200*time.Millisecond))
	requireIs(t, err, jetpull.ErrTimeout)

	ops := w.sync(t)
	var sent []map[string]any
	for _, op := range pick(ops, "PUB") {
		body, next := strings.CutPrefix(string(op.Body), "+NXT ")
		if next || op.Subject == nextSubject {
			sent = append(sent, object(t, []byte(body)))
		}
	}
	require.GreaterOrEqual(t, len(sent), 8)
	for _, pull := range sent {
		require.Equal(t, "A", pull["group"], "%v", pull)
		require.Equal(t, id, pull["id"], "%v", pull)
	}
	require.Zero(t, w.sub.Stats().Statuses[423])
	require.Zero(t, w.sub.Stats().Statuses[400])
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
		m, err := sub.Next(t.Context())
		require.NoError(t, err)
		ackAll(t, m)
	}
	require.Empty(t, seen)
	close(release)
	id, _ := sub.Pin()
	require.Equal(t, id, receive(t, seen, "the callback"))
}

func TestStandbyTakesOverAfterUnpin(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	var firstLog, secondLog pinLog
	first := r.subscribe(t, pinnedConsumer(), firstLog.options()...)
	second := subscribe(t, r.js, "S", "C", secondLog.options()...)
	r.publish(t, 1)
	m, err := first.Next(t.Context())
	require.NoError(t, err)
	ackAll(t, m)
	firstID, _ := first.Pin()
	require.NotEmpty(t, firstID)

	// The stand-by waits first and longest, and gets nothing.
	standby := call(t.Context(), second, 0, jetpull.MaxWait(patience))
	r.waiting(t, 1)
	for range 20 {
		r.publish(t, 1)
		m, err := first.Next(t.Context())
		require.NoError(t, err)
		ackAll(t, m)
	}
	require.Empty(t, standby)
	require.Empty(t, secondLog.all())
	r.waiting(t, 1)

	require.NoError(t, first.Unpin(t.Context()))
	r.publish(t, 1)
	res := receive(t, standby, "the message after the unpin")
	require.NoError(t, res.err)
	ackAll(t, res.msgs...)
	secondID, held := second.Pin()
	require.True(t, held)
	require.NotEqual(t, firstID, secondID)
	secondLog.require(t, "pin A "+secondID)

	// The first learns of it with its next pull, and is a stand-by from then
	// on; the 423 is not shown.
	waiting := call(t.Context(), first, 3, jetpull.MaxWait(patience))
	firstLog.require(t, "pin A "+firstID, "unpin A "+firstID)
	r.waiting(t, 1)
	_, held = first.Pin()
	require.False(t, held)
	r.publish(t, 1)
	m, err = second.Next(t.Context())
	require.NoError(t, err)
	require.Empty(t, waiting)

	// And back again, by AckNext on a pin that is lost meanwhile.
	require.NoError(t, jetpull.Unpin(t.Context(), r.js, "S", "C", "A"))
	r.publish(t, 1)
	res = receive(t, waiting, "the message after the second unpin")
	require.NoError(t, res.err)
	ackAll(t, res.msgs...)
	thirdID, _ := first.Pin()
	firstLog.require(t, "pin A "+firstID, "unpin A "+firstID, "pin A "+thirdID)
	_, err = m.AckNext(t.Context(), jetpull.MaxWait(300*time.Millisecond))
	requireIs(t, err, jetpull.ErrTimeout)
	require.NotErrorIs(t, err, jetpull.ErrPinMismatch)
	secondLog.require(t, "pin A "+secondID, "unpin A "+secondID)
	r.ackPending(t, 0)
}

// The pin goes back and forth while many callers pull: every message is handed
// over once, no caller sees a 423, and each subscription is told of its pins in
// pairs.
func TestUnpinUnderLoad(t *testing.T) {
	t.Parallel()
	const callers, bursts, burst = 4, 12, 100
	r := newRig(t)
	cfg := pinnedConsumer()
	cfg.MaxAckPending = -1
	r.consumer(t, cfg)
	var h history
	var logs [2]pinLog
	var subs [2]*jetpull.Subscription
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var calling sync.WaitGroup
	for i := range subs {
		subs[i] = subscribe(t, r.js, "S", "C", logs[i].options()...)
		for n := range callers {
			calling.Go(func() {
				for ctx.Err() == nil {
					res := <-call(ctx, subs[i], n, jetpull.MaxWait(patience))
					h.note(t, res.msgs...)
					if res.err != nil && ctx.Err() == nil {
						t.Errorf("subscription %d after %d messages: %v", i, h.count.Load(), res.err)
						return
					}
				}
			})
		}
	}
	for done := 1; done <= bursts; done++ {
		r.publish(t, burst)
		require.NoError(t, jetpull.Unpin(t.Context(), r.js, "S", "C", "A"))
		eventually(t, func() error {
			if n := h.count.Load(); n < int64(done*burst) {
				info, err := subs[0].Info(t.Context())
				if err != nil {
					return err
				}
				return fmt.Errorf("%d messages; %d pending, %d ack pending, %d waiting, groups %+v; stats %+v and %+v",
					n, info.NumPending, info.NumAckPending, info.NumWaiting, info.PriorityGroups, subs[0].Stats(), subs[1].Stats())
			}
			return nil
		}, "burst %d is handed over", done)
	}
	stop()
	calling.Wait()
	require.Equal(t, bursts*burst, h.seen.len())
	r.ackPending(t, 0)
	pins := 0
	for i := range logs {
		require.NoError(t, subs[i].Close(t.Context()))
		events := logs[i].all()
		for n, event := range events {
			id, gained := strings.CutPrefix(event, "pin A ")
			require.Equal(t, n%2 == 0, gained, "pins come and go in turn: %q", events)
			if gained {
				pins++
			} else {
				require.Equal(t, "un"+events[n-1], "un"+"pin A "+strings.TrimPrefix(id, "unpin A "), "what is lost is what was gained: %q", events)
			}
		}
	}
	require.GreaterOrEqual(t, pins, bursts/2, "the pin was given anew")
}

func TestPinTimesOut(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	cfg := pinnedConsumer()
	cfg.PinnedTTL = 600 * time.Millisecond
	var firstLog, secondLog pinLog
	first := r.subscribe(t, cfg, firstLog.options()...)
	second := subscribe(t, r.js, "S", "C", secondLog.options()...)
	advisories := listen(t, r)
	r.publish(t, 2)
	m, err := first.Next(t.Context())
	require.NoError(t, err)
	ackAll(t, m)
	firstID, _ := first.Pin()
	requireAdvisory(t, advisories, jetpull.PinAdvisory{Pinned: true, ID: firstID})

	// The first pulls no more; when its time is over the stand-by is pinned.
	res := receive(t, call(t.Context(), second, 0, jetpull.MaxWait(patience)), "the message after the time-out")
	require.NoError(t, res.err)
	requireBodies(t, res.msgs, "2")
	secondID, _ := second.Pin()
	requireAdvisory(t, advisories, jetpull.PinAdvisory{Reason: "timeout"})
	requireAdvisory(t, advisories, jetpull.PinAdvisory{Pinned: true, ID: secondID})
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
	require.WithinDuration(t, time.Now(), got.Time, 10*time.Second)
	got.Time = time.Time{}
	want.Stream, want.Consumer, want.Group = "S", "C", "A"
	require.Equal(t, want, got)
}

func TestAdvisories(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	sub := r.subscribe(t, pinnedConsumer(), jetpull.Group("A"))
	advisories := listen(t, r)
	r.publish(t, 2)
	for range 2 {
		m, err := sub.Next(t.Context())
		require.NoError(t, err)
		ackAll(t, m)
		id, _ := sub.Pin()
		requireAdvisory(t, advisories, jetpull.PinAdvisory{Pinned: true, ID: id})
		require.NoError(t, sub.Unpin(t.Context()))
		requireAdvisory(t, advisories, jetpull.PinAdvisory{Reason: "admin"})
	}
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
		t.Run(tc.name, func(t *testing.T) {
			start := time.Now()
			err := jetpull.Unpin(t.Context(), r.js, tc.stream, tc.consumer, tc.group)
			require.Error(t, err)
			if tc.is != nil {
				require.ErrorIs(t, err, tc.is)
			} else {
				var api *jetstream.APIError
				require.ErrorAs(t, err, &api)
				require.NotZero(t, api.ErrorCode)
			}
			require.Less(t, time.Since(start), 2*time.Second, "at once")
		})
	}
	require.NoError(t, jetpull.Unpin(t.Context(), r.js, "S", "C", "A"), "nobody is pinned: nothing to do")
}
