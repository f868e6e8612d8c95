package jetpull

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
)

// TestDeadLetterOfAPanicHasNoStack: paths of the source are no business of those
// who read the dead letters.
func TestDeadLetterOfAPanicHasNoStack(t *testing.T) {
	onStage(t, jetstream.ConsumerConfig{}, func(t *testing.T, s *stage) {
		g := newGraveyard(t, s)
		s.publish(1)
		r := s.consume(func(context.Context, *Msg) error { panic("boom") }, MaxAttempts(1), DeadLetter("dead.letters"))
		pass(time.Second)
		require.NoError(t, r.stop())
		require.Len(t, g.dead, 1)
		require.Equal(t, "the handler panicked: boom", g.dead[0].header.Get(HeaderDeadReason))
		terms := s.verbs("+TERM", 1)
		require.Len(t, terms, 1)
		require.Equal(t, "failed 1 times: the handler panicked: boom", terms[0].arg)
		require.Len(t, r.errs.all(), 1)
		require.ErrorContains(t, r.errs.all()[0], "panic_test.go", "where it panicked")
		require.Len(t, s.logs.with("panic_test.go"), 1)
	})
}
