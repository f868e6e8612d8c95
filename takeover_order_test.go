package jetpull

import (
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
)

type slowLog struct{ slog.Handler }

func (h slowLog) WithAttrs(a []slog.Attr) slog.Handler { return slowLog{h.Handler.WithAttrs(a)} }
func (h slowLog) Handle(ctx context.Context, r slog.Record) error {
	if strings.Contains(r.Message, "does not fit") {
		<-time.After(1500 * time.Millisecond)
	}
	return h.Handler.Handle(ctx, r)
}

// TestNothingIsPulledBeforeTheStreamHasFollowed: a later reading is answered while the first one is taken over.
func TestNothingIsPulledBeforeTheStreamHasFollowed(t *testing.T) {
	onStage(t, jetstream.ConsumerConfig{}, func(t *testing.T, s *stage) {
		var n atomic.Int32
		h := func(context.Context, *Msg) error { n.Add(1); return nil }
		r := s.consume(h, AwaitConsumer(), Concurrency(4), Logger(slog.New(slowLog{slog.NewTextHandler(s.logs, nil)})))
		pass(time.Second)
		s.publish(20)
		pass(time.Second)
		s.remake(func(cfg *jetstream.ConsumerConfig) { cfg.AckPolicy = jetstream.AckAllPolicy })
		s.publish(20)
		t.Log("result", r.result(), "handled", n.Load())
		if n.Load() != 20 {
			t.Errorf("%d of the new consumer's messages were handled", n.Load()-20)
		}
	})
}

// TestAReadingFromBeforeADeletionDoesNotCount: it was asked for when an older pull was still open.
func TestAReadingFromBeforeADeletionDoesNotCount(t *testing.T) {
	w := newWorld(t, limits{})
	w.post(0, 0, standingOf(10))
	p := w.pulled(pullStream)[0]
	w.r.gone(w.now, ErrConsumerDeleted) // a reading for a 503 says so: unread, while p is open
	w.did()
	w.pass(400 * time.Millisecond)
	require.Positive(t, w.checks)
	require.NotNil(t, p.inbox.pull)
	require.True(t, w.r.unread)
	needs := w.r.needs // a reading goes out
	w.status(p, 409, "Consumer Deleted")
	w.r.found(w.now, limits{}, needs) // it was answered before the deletion
	w.did()
	require.True(t, w.r.unread, "nothing is known of what is there now")
}
