package jetpull

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
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

// firstKey panics for a message without the header.
func firstKey(m *Msg) string { return m.Headers()["Key"][0] }

// TestAPanicOfOrderedBy is one for a single message: the others go on, and it is
// given up like one whose handler failed.
func TestAPanicOfOrderedBy(t *testing.T) {
	for name, opts := range map[string][]Option{"one worker": nil, "workers": {Concurrency(4)}} {
		t.Run(name, func(t *testing.T) {
			onStage(t, jetstream.ConsumerConfig{}, func(t *testing.T, s *stage) {
				g := newGraveyard(t, s)
				var j journal
				r := s.consume(j.handler(0), append(opts, OrderedBy(firstKey), RetryDelays(0, 5*time.Second), MaxAttempts(3), DeadLetter("dead.letters"))...)
				for _, header := range []nats.Header{{"Key": {"a"}}, nil, {"Key": {"a"}}, {"Key": {""}}} {
					s.publishTo("s.a", header, "body")
				}
				pass(time.Millisecond)
				require.ElementsMatch(t, []int{1, 3, 4}, j.all(), "it holds up no other")
				require.Equal(t, []string{`{"delay":1000000000}`}, args(s.verbs("-NAK", 2)))
				pass(time.Minute)
				require.Equal(t, []string{`{"delay":1000000000}`, `{"delay":5000000000}`}, args(s.verbs("-NAK", 2)))
				require.Len(t, g.dead, 1)
				require.Equal(t, "the OrderedBy function panicked: runtime error: index out of range [0] with length 0", g.dead[0].header.Get(HeaderDeadReason))
				require.Equal(t, "3", g.dead[0].header.Get(HeaderDeadAttempts))
				require.Zero(t, s.unsettled())
				require.Equal(t, 3, j.len())
				require.Len(t, r.errs.all(), 3)
				for _, err := range r.errs.all() {
					require.ErrorContains(t, err, "stream sequence 2")
					require.ErrorContains(t, err, "panic_test.go", "where it panicked")
				}
				require.Len(t, s.logs.with("panic_test.go"), 3)
				require.NoError(t, r.stop())
			})
		})
	}
}

func args(acks []stageAck) (all []string) {
	for _, a := range acks {
		all = append(all, a.arg)
	}
	return all
}

// TestAPanicOfOrderedByThatEnds: no message is lost by it, nor tried in a hot loop.
func TestAPanicOfOrderedByThatEnds(t *testing.T) {
	onStage(t, jetstream.ConsumerConfig{}, func(t *testing.T, s *stage) {
		const n, ends = 50, 20
		s.publish(n)
		broken := true // written and read by what runs for the engine, one at a time
		var j journal
		r := s.consume(j.handler(0), Concurrency(3), OrderedBy(func(m *Msg) string {
			if broken = broken && m.Delivered() <= ends; broken {
				panic("no key")
			}
			return m.Subject()
		}))
		pass(ends*keylessAgain - time.Millisecond)
		require.Zero(t, j.len())
		require.Equal(t, n*ends, s.count("-NAK", 0))
		pass(2 * keylessAgain)
		require.ElementsMatch(t, upTo(n), j.all())
		require.Equal(t, n, s.ackedCount())
		require.Zero(t, s.unsettled())
		pass(time.Minute)
		require.Equal(t, n, j.len())
		require.NoError(t, r.stop())
		for _, seq := range upTo(n) {
			require.Equal(t, 1, s.count("+ACK", seq))
		}
	})
}
