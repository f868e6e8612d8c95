package test

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/internal/natstest"
)

// TestStartAndStopLeaveNothing is not parallel: it counts what the process has.
func TestStartAndStopLeaveNothing(t *testing.T) {
	r := newRig(t)
	sub := r.subscribe(t, jetstream.ConsumerConfig{AckWait: time.Minute, MaxAckPending: -1})
	r.publish(t, 200)
	round := func(i int) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		s := sub
		if i%10 == 0 {
			var err error
			s, err = jetpull.Subscribe(ctx, r.js, "S", "C")
			require.NoError(t, err)
		}
		if i%2 == 0 {
			require.NoError(t, s.Consume(ctx, func(_ context.Context, m *jetpull.Msg) error {
				cancel()
				return m.Nak() // so that the next round has it
			}, jetpull.Concurrency(1+i%5), byKey))
		} else {
			for m, err := range s.Messages(ctx) {
				require.NoError(t, err)
				require.NoError(t, m.Nak())
				break
			}
		}
		if s != sub {
			require.NoError(t, s.Close(t.Context()))
		}
	}
	subscriptions := 0
	for i := range 100 { // so that pools are as full as they get
		round(i)
		subscriptions = max(subscriptions, r.nc.NumSubscriptions())
	}
	goroutines, memory := runtime.NumGoroutine(), heap()
	for i := range 1000 {
		round(i)
	}
	eventually(t, func() error {
		if n := runtime.NumGoroutine(); n > goroutines {
			return fmt.Errorf("%d goroutines, %d before", n, goroutines)
		}
		return nil
	}, "goroutines")
	// A drained inbox is gone a moment later.
	eventually(t, func() error {
		if n := r.nc.NumSubscriptions(); n > subscriptions {
			return fmt.Errorf("%d subscriptions, %d before", n, subscriptions)
		}
		return nil
	}, "subscriptions")
	require.Less(t, heap(), memory+2<<20, "the heap grew by more than 2 MiB, or 2 KiB a round")
	eventually(t, func() error {
		if n := sub.Stats().Outstanding; n != 0 {
			return fmt.Errorf("%d messages", n)
		}
		return nil
	}, "nothing is outstanding")
	stats := sub.Stats()
	require.Zero(t, stats.Buffered+stats.Running+stats.Window)
}


// worker is one process of a fleet.
type worker struct {
	nc  *nats.Conn
	sub *jetpull.Subscription
	run *consuming
	got atomic.Int64
}

// hire starts a worker on a connection of its own.
func (r *rig) hire(t *testing.T, handle jetpull.Handler, opts ...jetpull.Option) *worker {
	t.Helper()
	w := &worker{nc: connect(t, r.server.URL())}
	var err error
	w.sub, err = jetpull.Subscribe(t.Context(), natstest.JetStream(t, w.nc), "S", "C", opts...)
	require.NoError(t, err)
	w.run = consume(t, w.sub, func(ctx context.Context, m *jetpull.Msg) error {
		w.got.Add(1)
		if handle != nil {
			return handle(ctx, m)
		}
		return nil
	})
	return w
}

// handles waits until the worker has got n messages.
func (w *worker) handles(t *testing.T, n int64) {
	t.Helper()
	eventually(t, func() error {
		if got := w.got.Load(); got < n {
			return fmt.Errorf("%d of %d messages", got, n)
		}
		return nil
	}, "a worker handles messages")
}

// active is the worker that the server has pinned.
func active(t *testing.T, r *rig, fleet []*worker) *worker {
	t.Helper()
	var found *worker
	eventually(t, func() error {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		c, err := r.js.Consumer(ctx, "S", "C")
		if err != nil {
			return err
		}
		pinned := c.CachedInfo().PriorityGroups[0].PinnedClientID
		for _, w := range fleet {
			if id, ok := w.sub.Pin(); ok && id == pinned && !w.nc.IsClosed() {
				found = w
				return nil
			}
		}
		return fmt.Errorf("the server has pinned %q, which nobody is", pinned)
	}, "a pinned worker")
	return found
}

// gate lets handlers through until it is shut, and again when it is opened.
type gate struct {
	shut atomic.Bool
	open chan struct{}
}

func (g *gate) pass() {
	if g.shut.Load() {
		<-g.open
	}
}

func TestPinnedFleet(t *testing.T) {
	t.Parallel()
	const (
		priorityTimeout = 2 * time.Second
		held            = 10
	)
	r := newRig(t)
	cfg := priorityConsumer(jetstream.PriorityPolicyPinned, "A")
	cfg.PinnedTTL, cfg.MaxAckPending, cfg.AckWait = priorityTimeout, -1, 5*time.Second
	r.consumer(t, cfg)
	book := keepLedger(t, r.nc, jetstream.AckExplicitPolicy)
	c := newChecker()
	c.key = noOrder // two have messages when a pin is taken away
	fleet, gates := make([]*worker, 3), map[*worker]*gate{}
	for i := range fleet {
		g := &gate{open: make(chan struct{})}
		fleet[i] = r.hire(t, c.noting(func(*jetpull.Msg) error { g.pass(); return nil }), jetpull.Group("A"))
		gates[fleet[i]] = g
	}
	f := feed(t, r.js, 200)
	first := active(t, r, fleet)
	first.handles(t, 100)
	for _, w := range fleet {
		require.True(t, w == first || w.got.Load() == 0, "a stand-by got messages")
	}

	gates[first].shut.Store(true)
	eventually(t, func() error {
		if st := first.sub.Stats(); st.Running == 0 || st.Buffered < held {
			return fmt.Errorf("%d running, %d wait", st.Running, st.Buffered)
		}
		return nil
	}, "the one that will be killed holds messages")
	first.nc.Close() // as if its process were killed
	killed := time.Now()
	eventually(t, func() error {
		if n := first.sub.Stats().Buffered; n > 0 {
			return fmt.Errorf("%d messages wait", n)
		}
		return nil
	}, "the one that was killed starts no other")
	close(gates[first].open)
	require.ErrorIs(t, receive(t, first.run.done, "end of the one that was killed"), jetpull.ErrClosed)
	lost := c.inFlight(t, r.js, book)
	require.Greater(t, len(lost), held, "what it held")
	require.Equal(t, 1, c.Fault(lost), "it was handling one")
	second := newcomer(t, fleet, first)
	require.Less(t, time.Since(killed), priorityTimeout+time.Second)
	require.Same(t, second, active(t, r, fleet))

	before := second.got.Load()
	second.handles(t, before+3*200) // three seconds: it keeps the pin longer than the timeout
	require.Same(t, second, active(t, r, fleet))

	require.NoError(t, second.sub.Unpin(t.Context()))
	unpinned := time.Now()
	third := newcomer(t, fleet, first, second)
	require.Less(t, time.Since(unpinned), time.Second)
	require.Same(t, third, active(t, r, fleet))

	total := f.end(t)
	c.wait(t, total, patience)
	r.ackPending(t, 0) // what it held has come again
	second.run.end(t)
	third.run.end(t)
	c.check(t, total)
}

// newcomer waits for a message at a worker that is none of the others, and
// returns it.
func newcomer(t *testing.T, fleet []*worker, others ...*worker) *worker {
	t.Helper()
	known := map[*worker]bool{}
	for _, w := range others {
		known[w] = true
	}
	var found *worker
	eventually(t, func() error {
		for _, w := range fleet {
			if !known[w] && w.got.Load() > 0 {
				found = w
				return nil
			}
		}
		return fmt.Errorf("no message")
	}, "another one takes over")
	return found
}

// TestOverflowAllDayLong: the second worker helps while there is a backlog,
// again and again, and only then.
func TestOverflowAllDayLong(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	cfg := priorityConsumer(jetstream.PriorityPolicyOverflow, "A")
	cfg.MaxAckPending = 100
	r.consumer(t, cfg)
	slow := func(context.Context, *jetpull.Msg) error {
		<-time.After(2 * time.Millisecond)
		return nil
	}
	main := r.hire(t, slow, jetpull.Group("A"))
	helper := r.hire(t, slow, jetpull.Group("A"), jetpull.MinPending(200))
	total := int64(0)
	settled := func() {
		t.Helper()
		consumerHas(t, r.js, "S", "C", func(i *jetstream.ConsumerInfo) bool { return i.AckFloor.Stream == uint64(total) }, "all is worked off")
	}
	for day := range 3 {
		for range 20 {
			r.publish(t, 1)
			total++
		}
		settled()
		alone := helper.got.Load()
		r.publish(t, 500)
		total += 500
		settled()
		require.Greater(t, helper.got.Load(), alone, "day %d: it helps with the backlog", day+1)
		helped := helper.got.Load()
		for range 20 {
			r.publish(t, 1)
			total++
		}
		settled()
		require.Equal(t, helped, helper.got.Load(), "day %d: without a backlog it gets nothing", day+1)
	}
	require.Equal(t, total, main.got.Load()+helper.got.Load())
	main.run.end(t)
	helper.run.end(t)
}

// TestPrioritizedAllDayLong: the second worker has the messages while the
// first is away, within a second, and only then.
func TestPrioritizedAllDayLong(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	cfg := priorityConsumer(jetstream.PriorityPolicyPrioritized, "A")
	r.consumer(t, cfg)
	second := r.hire(t, nil, jetpull.Group("A"), jetpull.Priority(5))
	for day := range 3 {
		first := r.hire(t, nil, jetpull.Group("A"))
		eventually(t, func() error {
			r.publish(t, 1)
			if first.got.Load() == 0 {
				return fmt.Errorf("the second has them all: %d", second.got.Load())
			}
			return nil
		}, "day %d: the first gets messages when its pull has arrived", day+1)
		r.ackPending(t, 0)
		start := first.got.Load()
		before := second.got.Load()
		for i := range int64(20) {
			r.publish(t, 1)
			first.handles(t, start+i+1)
		}
		require.Equal(t, before, second.got.Load(), "day %d: while the first is there", day+1)
		if day%2 == 0 {
			first.run.end(t)
		} else {
			// What the server sends before it knows is in flight until AckWait is over.
			clients := r.server.Unwrap().NumClients()
			first.nc.Close()
			r.fewerClients(t, clients)
		}
		gone := time.Now()
		r.publish(t, 1)
		second.handles(t, before+1)
		require.Less(t, time.Since(gone), time.Second, "day %d: when the first has gone", day+1)
	}
	second.run.end(t)
}
