package jetpull

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/internal/pull"
	"github.com/jetpull/jetpull/internal/testmsg"
	"github.com/jetpull/jetpull/internal/worker"
)

// A missing number is a delivery that did not arrive. A lower number means a consumer that was reset or recreated.
func TestMissedDeliveries(t *testing.T) {
	g := gaps{next: 1}
	for _, n := range []uint64{1, 2, 3} {
		g.note(n)
	}
	require.Zero(t, g.missed.Load())
	g.note(6)
	require.Equal(t, uint64(2), g.missed.Load())
	g.note(7)
	g.note(1)
	g.note(2)
	require.Equal(t, uint64(2), g.missed.Load())
}

// sending records the settlement of a message while its acknowledgement is sent.
type sending struct {
	m   *Msg
	how worker.Settlement
}

func (s *sending) Sent([]byte, bool) { s.how = s.m.settlement() }

// TestHandBackIsKnownBeforeItIsSent: the redelivery of a message can arrive before the call that handed the message back
// has returned. If the pool did not know of that call, it would take the redelivery for a copy of the held message, and
// no handler would get it until AckWait has passed.
func TestHandBackIsKnownBeforeItIsSent(t *testing.T) {
	for name, handBack := range map[string]func(*Msg) error{
		"Nak":          (*Msg).Nak,
		"NakWithDelay": func(m *Msg) error { return m.NakWithDelay(1) },
	} {
		s := &sending{}
		s.m = testmsg.New("a", "", nil, nil, s).(*Msg)
		if err := handBack(s.m); err != nil || s.how != worker.Naked {
			t.Errorf("%s: settled as %v while it was sent, error %v", name, s.how, err)
		}
	}
}

// lockedHandler records whether a line is logged while a Subscription's calls are locked.
type lockedHandler struct {
	slog.Handler
	s              *Subscription
	logged, locked int
}

func (*lockedHandler) Enabled(context.Context, slog.Level) bool { return true }

func (h *lockedHandler) Handle(context.Context, slog.Record) error {
	h.logged++
	if h.s.calls.mu.TryLock() {
		h.s.calls.mu.Unlock()
	} else {
		h.locked++
	}
	return nil
}

// A recreated consumer ends the runs, and an edit ends none. No callback is posted with a lock held: here, callbacks run where they are posted.
func TestARunEndsWithItsConsumer(t *testing.T) {
	log := &lockedHandler{}
	s := &Subscription{}
	log.s = s
	s.session.Store(sessionOf(&jetstream.ConsumerInfo{Name: "C"}))
	s.notifier = &worker.Notifier{Start: func(f func(context.Context)) bool { f(context.Background()); return true }}
	r := &run{
		sub: s, kind: callMessages, set: defaultSettings(), session: s.session.Load(),
		report: &worker.Reporter{Log: slog.New(log), Notifier: s.notifier},
	}
	ops := worker.Ops[*Msg]{Now: func() pull.At { return 0 }, Halt: func() {}, Over: t.Context(), Report: r.report}
	r.pool = worker.New(ops, worker.Settings{Workers: 1}, worker.Consumer{})
	for _, info := range []*jetstream.ConsumerInfo{
		{Name: "C", Config: jetstream.ConsumerConfig{AckWait: time.Minute}},
		{Name: "C", Created: time.Unix(1, 0)},
	} {
		require.NoError(t, r.pool.Err())
		r.follow(sessionOf(info))
	}
	_, more := r.pool.Next(t.Context())
	require.False(t, more, "the run goes on")
	require.ErrorIs(t, r.pool.Err(), worker.ErrReconfigured)
	require.Equal(t, []int{2, 0}, []int{log.logged, log.locked}, "lines that were logged, and those of them with the lock held")
}
