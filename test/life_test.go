package test

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/internal/natstest"
)

// handed are the messages that handlers were given.
type handed struct {
	mu   sync.Mutex
	seqs map[uint64]bool
}

func (h *handed) add(t *testing.T, m *jetpull.Msg) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.seqs == nil {
		h.seqs = map[uint64]bool{}
	}
	if h.seqs[m.Sequence()] {
		t.Errorf("message %d was handed over twice", m.Sequence())
	}
	h.seqs[m.Sequence()] = true
}

func (h *handed) len() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.seqs)
}

// TestAfterAnyStopNothingIsStranded: AckWait is a minute, and what the one that
// stops has read ahead and not handed over is with another one in two seconds.
func TestAfterAnyStopNothingIsStranded(t *testing.T) {
	t.Parallel()
	const messages = 3000
	for name, stop := range map[string]func(*testing.T, *jetpull.Subscription, *handed){
		"Consume, context ends": func(t *testing.T, sub *jetpull.Subscription, h *handed) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var once sync.Once
			require.NoError(t, sub.Consume(ctx, func(_ context.Context, m *jetpull.Msg) error {
				if h.add(t, m); h.len() >= 20 {
					once.Do(func() {
						whenReadAhead(t, sub)
						cancel()
					})
				}
				return nil
			}, jetpull.Concurrency(3)))
		},
		"Consume, Close": func(t *testing.T, sub *jetpull.Subscription, h *handed) {
			var once sync.Once
			err := sub.Consume(t.Context(), func(_ context.Context, m *jetpull.Msg) error {
				if h.add(t, m); h.len() >= 20 {
					once.Do(func() {
						whenReadAhead(t, sub)
						go func() { _ = sub.Close(context.WithoutCancel(t.Context())) }()
					})
				}
				return nil
			})
			require.ErrorIs(t, err, jetpull.ErrClosed)
		},
		"Messages, break": func(t *testing.T, sub *jetpull.Subscription, h *handed) {
			for m, err := range sub.Messages(t.Context()) {
				require.NoError(t, err)
				require.NoError(t, m.Ack())
				if h.add(t, m); h.len() == 20 {
					whenReadAhead(t, sub)
					break
				}
			}
		},
		"Messages, context ends": func(t *testing.T, sub *jetpull.Subscription, h *handed) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			for m, err := range sub.Messages(ctx) {
				require.NoError(t, err)
				require.NoError(t, m.Ack())
				if h.add(t, m); h.len() == 20 {
					whenReadAhead(t, sub)
					cancel()
				}
			}
		},
		"Messages, Close": func(t *testing.T, sub *jetpull.Subscription, h *handed) {
			var last error
			for m, err := range sub.Messages(t.Context()) {
				if last = err; err != nil {
					continue
				}
				require.NoError(t, m.Ack())
				if h.add(t, m); h.len() == 20 {
					whenReadAhead(t, sub)
					require.NoError(t, sub.Close(t.Context()))
				}
			}
			require.ErrorIs(t, last, jetpull.ErrClosed)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			sub := r.subscribe(t, jetstream.ConsumerConfig{AckWait: time.Minute, MaxAckPending: -1})
			r.publish(t, messages)
			var h handed
			stop(t, sub, &h)
			stopped := time.Now()
			other := consume(t, subscribe(t, r.js, "S", "C"), func(_ context.Context, m *jetpull.Msg) error {
				h.add(t, m)
				return nil
			})
			eventually(t, func() error {
				if n := h.len(); n < messages {
					return fmt.Errorf("%d of %d messages", n, messages)
				}
				return nil
			}, "everything is handed over")
			require.Less(t, time.Since(stopped), handBackWithin)
			r.ackPending(t, 0)
			other.end(t)
		})
	}
}

// whenReadAhead waits until messages wait in the client, so that there is
// something to strand.
func whenReadAhead(t *testing.T, sub *jetpull.Subscription) {
	eventually(t, func() error {
		if st := sub.Stats(); st.Buffered == 0 {
			return fmt.Errorf("nothing is read ahead: %+v", st)
		}
		return nil
	}, "read-ahead")
}

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
	stats := sub.Stats()
	require.Zero(t, stats.Outstanding+stats.Buffered+stats.Running+stats.Window)
}

func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// worker is one process of a fleet.
type worker struct {
	nc  *nats.Conn
	sub *jetpull.Subscription
	run *consuming
	got atomic.Int64
}

// hire starts a worker on a connection of its own.
func (r *rig) hire(t *testing.T, handle func(*jetpull.Msg), opts ...jetpull.Option) *worker {
	t.Helper()
	w := &worker{nc: connect(t, r.server.URL())}
	var err error
	w.sub, err = jetpull.Subscribe(t.Context(), natstest.JetStream(t, w.nc), "S", "C", opts...)
	require.NoError(t, err)
	w.run = consume(t, w.sub, func(_ context.Context, m *jetpull.Msg) error {
		w.got.Add(1)
		if handle != nil {
			handle(m)
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

func TestPinnedFleet(t *testing.T) {
	t.Parallel()
	const priorityTimeout = 2 * time.Second
	r := newRig(t)
	cfg := priorityConsumer(jetstream.PriorityPolicyPinned, "A")
	cfg.PinnedTTL, cfg.MaxAckPending = priorityTimeout, -1
	r.consumer(t, cfg)
	var seen tally
	fleet := make([]*worker, 3)
	for i := range fleet {
		fleet[i] = r.hire(t, func(m *jetpull.Msg) { seen.add(string(m.Data())) }, jetpull.Group("A"))
	}
	f := feed(t, r.js, 200)
	first := active(t, r, fleet)
	first.handles(t, 100)
	for _, w := range fleet {
		require.True(t, w == first || w.got.Load() == 0, "a stand-by got messages")
	}

	first.nc.Close() // as if its process were killed
	killed := time.Now()
	second := newcomer(t, fleet, first)
	require.Less(t, time.Since(killed), priorityTimeout+time.Second)
	require.ErrorIs(t, receive(t, first.run.done, "end of the one that was killed"), jetpull.ErrClosed)
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
	eventually(t, func() error {
		if n := seen.len(); n < total-100 {
			return fmt.Errorf("%d of %d", n, total)
		}
		return nil
	}, "all but what the killed one held is handled")
	second.run.end(t)
	third.run.end(t)
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
	slow := func(*jetpull.Msg) { <-time.After(2 * time.Millisecond) }
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
