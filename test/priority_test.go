package test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/internal/natstest"
)

// TestAdvisories: by whom a pin is gained and why it is lost, until the connection ends.
func TestAdvisories(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	cfg := pinnedConsumer()
	cfg.PinnedTTL = 5 * time.Second // a machine may be so slow that less is over before Unpin
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
	reaches(t, 1, "advisories are subscribed to", nc.NumSubscriptions)
	require.NoError(t, nc.Flush())
	advised := func(want jetpull.PinAdvisory) {
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
		advised(jetpull.PinAdvisory{Pinned: true, ID: id})
	}
	pinned(first)
	require.NoError(t, first.Unpin(t.Context()))
	advised(jetpull.PinAdvisory{Reason: "admin"})
	pinned(first)
	advised(jetpull.PinAdvisory{Reason: "timeout"}) // it pulls no more, and its time is over
	pinned(second)
	nc.Close()
	err := receive(t, ended, "error")
	require.ErrorIs(t, err, jetpull.ErrClosed)
	require.ErrorIs(t, err, nats.ErrConnectionClosed)
	_, more := <-ended
	require.False(t, more, "one error and the end")
}

// TestServerPinsAPullThatIsGone: the server gives the pin to a pull whose caller has returned, if it is the only one, and
// no client is pinned then until the priority timeout. If a newer server does not, the sentence at Unpin can go.
func TestServerPinsAPullThatIsGone(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	cfg := pinnedConsumer()
	cfg.PinnedTTL = time.Second
	r.consumer(t, cfg)
	pinned, err := r.nc.SubscribeSync("$JS.EVENT.ADVISORY.CONSUMER.PINNED.S.C")
	require.NoError(t, err)
	pull := func(body string) *nats.Subscription {
		in := r.nc.NewInbox()
		sub, err := r.nc.SubscribeSync(in)
		require.NoError(t, err)
		require.NoError(t, r.nc.PublishRequest("$JS.API.CONSUMER.MSG.NEXT.S.C", in, []byte(body)))
		return sub
	}
	gone := pull(`{"batch":1,"expires":30000000000,"idle_heartbeat":500000000,"group":"A"}`)
	_, err = gone.NextMsg(patience) // a heartbeat: the pull waits
	require.NoError(t, err)
	require.NoError(t, gone.Unsubscribe())
	require.NoError(t, r.nc.Flush())
	r.publish(t, 1)
	_, err = pinned.NextMsg(patience)
	require.NoError(t, err, "a pin of nobody")
	consumerHas(t, r.js, "S", "C", func(i *jetstream.ConsumerInfo) bool { return i.NumWaiting == 0 && i.NumPending == 1 }, "no delivery")
	m, err := pull(`{"batch":1,"expires":30000000000,"group":"A"}`).NextMsg(patience)
	require.NoError(t, err)
	require.NotEmpty(t, m.Header.Get("Nats-Pin-Id"), "pinned after the timeout")
}

// The server reports the pinned client under the name of the consumer's first group, whichever group that is in.
func TestAPinOfAnotherGroupIsGivenUp(t *testing.T) {
	t.Parallel()
	for _, group := range []string{"A", "B"} {
		r := newRig(t)
		cfg := pinnedConsumer()
		cfg.PriorityGroups = []string{"A", "B"}
		sub := r.subscribe(t, cfg, jetpull.Group("A"))
		r.publish(t, 1)
		ctx, end := context.WithCancel(t.Context())
		require.NoError(t, sub.Consume(ctx, func(context.Context, *jetpull.Msg) error { end(); return nil }, jetpull.Group(group)))
		info, err := sub.Info(t.Context())
		require.NoError(t, err)
		for _, g := range info.PriorityGroups {
			require.Empty(t, g.PinnedClientID)
		}
	}
}

// A call can have another group than the default one.
func TestCloseGivesUpThePinOfEachGroup(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	cfg := pinnedConsumer()
	cfg.PriorityGroups = []string{"A", "B"}
	sub := r.subscribe(t, cfg, jetpull.Group("A"))
	r.publish(t, 1)
	m, err := sub.Next(t.Context(), jetpull.Group("B"))
	require.NoError(t, err)
	require.NoError(t, m.Ack())
	pinned := func(want bool) func(*jetstream.ConsumerInfo) bool {
		return func(i *jetstream.ConsumerInfo) bool {
			return want == slices.ContainsFunc(i.PriorityGroups, func(g jetstream.PriorityGroupState) bool { return g.PinnedClientID != "" })
		}
	}
	consumerHas(t, r.js, "S", "C", pinned(true), "a pin")
	require.NoError(t, sub.Close(t.Context()))
	consumerHas(t, r.js, "S", "C", pinned(false), "no pin")
}
