package test

import (
	"fmt"
	"slices"
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
		if op.Subject == nextSubject {
			pull := object(t, op.Body)
			require.Equal(t, "A", pull["group"], "%v", pull)
			require.Equal(t, id, pull["id"], "%v", pull)
			sent++
		}
	}
	require.GreaterOrEqual(t, sent, 8)
	require.Zero(t, w.sub.Stats().Statuses[423]+w.sub.Stats().Statuses[400])
	log.require(t, "pin A "+id)
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

// TestAdvisories: by whom a pin is gained and why it is lost, until the connection ends.
func TestAdvisories(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	cfg := pinnedConsumer()
	cfg.PinnedTTL = 600 * time.Millisecond
	first := r.subscribe(t, cfg, jetpull.Group("A"))
	second := subscribe(t, r.js, "S", "C", jetpull.Group("A"))
	nc := r.server.Connect(t)
	advisories, ended := make(chan jetpull.PinAdvisory, 100), make(chan error, 10)
	go func() {
		for a, err := range jetpull.Advisories(t.Context(), natstest.JetStream(t, nc), "S", "C") {
			if err != nil {
				ended <- err
			} else {
				advisories <- a
			}
		}
		close(ended)
	}()
	reaches(t, 2, "advisories are subscribed to", nc.NumSubscriptions)
	require.NoError(t, nc.Flush())
	told := func(want jetpull.PinAdvisory) {
		t.Helper()
		got := receive(t, advisories, "advisory")
		require.WithinDuration(t, time.Now(), got.Time, patience)
		want.Stream, want.Consumer, want.Group, want.Time = "S", "C", "A", got.Time
		require.Equal(t, want, got)
	}
	pinned := func(sub *jetpull.Subscription) {
		t.Helper()
		r.publish(t, 1)
		ackAll(t, next(t, sub, jetpull.MaxWait(patience)))
		id, _ := sub.Pin()
		told(jetpull.PinAdvisory{Pinned: true, ID: id})
	}
	pinned(first)
	require.NoError(t, first.Unpin(t.Context()))
	told(jetpull.PinAdvisory{Reason: "admin"})
	pinned(first)
	told(jetpull.PinAdvisory{Reason: "timeout"}) // it pulls no more, and its time is over
	pinned(second)
	nc.Close()
	requireIs(t, receive(t, ended, "error"), jetpull.ErrClosed, nats.ErrConnectionClosed)
	_, more := <-ended
	require.False(t, more, "one error and the end")
}

// TestServerPinsAPullThatIsGone: the server gives the pin to a pull that nobody waits for any more, where no other is there, and
// nobody is pinned then until the priority timeout. Where it does so no more, the sentence at Unpin can go.
func TestServerPinsAPullThatIsGone(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	cfg := pinnedFor(2 * time.Second)
	r.consumer(t, cfg)
	pull := func(body string) *nats.Subscription {
		in := r.nc.NewInbox()
		sub, err := r.nc.SubscribeSync(in)
		require.NoError(t, err)
		require.NoError(t, r.nc.PublishRequest("$JS.API.CONSUMER.MSG.NEXT.S.C", in, []byte(body)))
		return sub
	}
	gone := pull(`{"batch":1,"expires":30000000000,"idle_heartbeat":500000000,"group":"A"}`)
	_, err := gone.NextMsg(patience) // a heartbeat: the pull waits
	require.NoError(t, err)
	require.NoError(t, gone.Unsubscribe())
	require.NoError(t, r.nc.Flush())
	r.publish(t, 1)
	consumerHas(t, r.js, "S", "C", func(i *jetstream.ConsumerInfo) bool {
		return i.NumWaiting == 0 && i.NumPending == 1 && i.PriorityGroups[0].PinnedClientID != ""
	}, "a pin of nobody")
	m, err := pull(`{"batch":1,"expires":30000000000,"group":"A"}`).NextMsg(patience)
	require.NoError(t, err)
	require.NotEmpty(t, m.Header.Get("Nats-Pin-Id"), "pinned after the timeout")
}
