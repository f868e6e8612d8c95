package jetpull

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/internal/pull"
	"github.com/jetpull/jetpull/internal/worker"
)

// changed is a JetStream with a consumer whose configuration is another one than the Subscription knows.
type changed struct {
	jetstream.JetStream
	changedConsumer
}

func (c changed) Consumer(context.Context, string, string) (jetstream.Consumer, error) {
	return c.changedConsumer, nil
}

type changedConsumer struct {
	jetstream.Consumer
	cfg jetstream.ConsumerConfig
}

func (c changedConsumer) CachedInfo() *jetstream.ConsumerInfo {
	return &jetstream.ConsumerInfo{Name: "C", Config: c.cfg}
}

// lockedHandler notes whether something is logged while a Subscription's calls are locked.
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

// TestARunEndsWithItsConfiguration: what a reading brings ends the runs, and calls no
// logger with a lock held, also when the Subscription is closed by then and its callbacks run where they are posted.
func TestARunEndsWithItsConfiguration(t *testing.T) {
	log := &lockedHandler{}
	s := &Subscription{js: changed{changedConsumer: changedConsumer{cfg: jetstream.ConsumerConfig{AckWait: time.Minute}}}}
	log.s = s
	s.bound.Store(bindingOf(&jetstream.ConsumerInfo{Name: "C"}))
	s.notifier = &worker.Notifier{Start: func(func(context.Context)) bool { return false }}
	r := &run{sub: s, kind: callMessages, set: defaultSettings(), report: &worker.Reporter{Log: slog.New(log), Notifier: s.notifier}}
	r.pool = worker.New(worker.Ops[*Msg]{Now: func() pull.At { return 0 }, Halt: func() {}, Report: r.report}, worker.Settings{Workers: 1}, worker.Consumer{})
	s.calls.runs = []*run{r}
	_, _, err := s.read(t.Context())
	require.NoError(t, err)
	_, more := r.pool.Next(t.Context())
	require.False(t, more, "the run goes on")
	require.ErrorIs(t, r.pool.Err(), worker.ErrReconfigured)
	require.Equal(t, []int{1, 0}, []int{log.logged, log.locked}, "lines that were logged, and those of them with the lock held")
}
