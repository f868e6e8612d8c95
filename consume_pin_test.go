package jetpull

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/internal/natstest"
)

var pinnedConfig = jetstream.ConsumerConfig{
	PriorityPolicy: jetstream.PriorityPolicyPinned, PriorityGroups: []string{"g"}, PinnedTTL: 9 * time.Second,
}

// pinning makes the stage keep a pin: pulls with another id are refused, those
// without one wait while there is a pin.
type pinning struct {
	s        *stage
	id       string
	n        int
	refresh  time.Time
	ids      []string
	standBys []natstest.Pull
}

func newPinning(s *stage) *pinning {
	g := &pinning{s: s}
	s.onPull = func(p natstest.Pull) bool {
		g.ids = append(g.ids, p.Req.ID)
		switch {
		case p.Req.ID != "" && p.Req.ID != g.id:
			s.peer.Status(p.Reply, 423, "Nats-Pin-Id mismatch")
			return true
		case p.Req.ID == "" && g.id != "":
			g.standBys = append(g.standBys, p)
			beat := time.Now().Add(p.Req.Expires - p.Req.Heartbeat)
			var alive func()
			alive = func() {
				if p.Req.Heartbeat > 0 && s.peer.Status(p.Reply, 100, "Idle Heartbeat") && time.Now().Before(beat) {
					time.AfterFunc(p.Req.Heartbeat, alive)
				}
			}
			time.AfterFunc(p.Req.Heartbeat, alive)
			time.AfterFunc(p.Req.Expires, func() {
				s.peer.Status(p.Reply, 408, "Request Timeout", "Nats-Pending-Messages", fmt.Sprint(p.Req.Batch), "Nats-Pending-Bytes", "0")
			})
			return true
		case p.Req.ID == "":
			g.n++
			g.id = fmt.Sprint("pin", g.n)
			s.stampPin(g.id)
		}
		g.refresh = time.Now()
		return false
	}
	return g
}

// stampPin puts the pin id on all messages that come from now on.
func (s *stage) stampPin(id string) {
	for i := range s.stored {
		s.stored[i].Header = nats.Header{"Nats-Pin-Id": {id}}
	}
}

type pinCalls struct {
	mu     sync.Mutex
	events []string
}

func (e *pinCalls) options() []Option {
	note := func(what string) func(PinEvent) {
		return func(p PinEvent) {
			e.mu.Lock()
			defer e.mu.Unlock()
			e.events = append(e.events, what+" "+p.ID)
		}
	}
	return []Option{Group("g"), OnPin(note("pinned")), OnUnpin(note("unpinned"))}
}

func (e *pinCalls) all() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]string(nil), e.events...)
}

func TestConsumeKeepsItsPin(t *testing.T) {
	onStage(t, pinnedConfig, func(t *testing.T, s *stage) {
		g := newPinning(s)
		s.publish(3)
		var events pinCalls
		r := s.consume(func(ctx context.Context, _ *Msg) error { <-ctx.Done(); return nil }, append(events.options(), Prefetch(2))...)
		start := time.Now()
		for time.Since(start) < 10*time.Minute {
			pass(time.Second)
			s.do(func() {
				require.LessOrEqual(t, time.Since(g.refresh), pinnedConfig.PinnedTTL/2, "only a pull keeps the pin, also while all workers are busy")
			})
		}
		require.LessOrEqual(t, s.pullCount(), 600/3+5, "one pull each third of the priority timeout")
		require.Equal(t, []string{"pinned pin1"}, events.all())
		require.Len(t, s.logs.with("pin changed"), 1)
		s.do(func() { require.Equal(t, "pin1", g.ids[len(g.ids)-1]) })
		require.ErrorIs(t, r.stop(), ErrDrainTimeout)
	}, Group("g"))
}

func TestConsumePinLostAndRegained(t *testing.T) {
	onStage(t, pinnedConfig, func(t *testing.T, s *stage) {
		g := newPinning(s)
		s.publish(100)
		var events pinCalls
		var j journal
		r := s.consume(j.handler(100*time.Millisecond), events.options()...)
		pass(time.Second)
		// Somebody unpinned it: waiting pulls and the next with the old id are
		// refused.
		s.do(func() {
			g.n++
			g.id = "pin2"
			for _, p := range append([]*stagePull(nil), s.pulls...) {
				s.end(p, 423, "Nats-Wrong-Pin-Id")
			}
		})
		pass(10 * time.Second)
		require.Equal(t, []string{"pinned pin1", "unpinned pin1"}, events.all())
		require.True(t, r.running())
		id, ok := s.sub.Pin()
		require.False(t, ok, "pin %q is still held", id)
		from := time.Now()
		pass(30 * time.Second)
		require.LessOrEqual(t, s.pullsSince(from), 12, "a stand-by pulls once per expiry, 3 s")
		// The other one is gone, and a message is there to be delivered.
		s.do(func() {
			g.id = ""
		})
		pass(10 * time.Second)
		require.Equal(t, []string{"pinned pin1", "unpinned pin1", "pinned pin3"}, events.all())
		pass(time.Minute)
		require.Equal(t, 100, s.ackedCount())
		require.NoError(t, r.stop())
	}, Group("g"))
}

// TestConsumePinnedWhileDisconnected: the pin fades while nothing can be
// pulled. If the client then looked for work without a pause, virtual time
// would stand still and the test would never end.
func TestConsumePinnedWhileDisconnected(t *testing.T) {
	onStage(t, pinnedConfig, func(t *testing.T, s *stage) {
		g := newPinning(s)
		s.publish(10)
		var j journal
		r := s.consume(j.handler(0), Group("g"))
		pass(time.Second)
		s.peer.Refuse(true)
		s.peer.Cut()
		s.forgetAll()
		pass(10 * time.Minute)
		s.do(func() { g.id = "" })
		s.peer.Refuse(false)
		s.publish(10)
		pass(time.Second)
		require.Equal(t, 20, s.ackedCount())
		s.answer(503, "")
		s.endAll(409, "Server Shutdown")
		from := time.Now()
		pass(10 * time.Minute)
		requireBounded(t, s, from, 6)
		require.NoError(t, r.stop())
		synctest.Wait()
	}, Group("g"))
}
