package jetpull

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
)

// TestAnOnErrorThatBlocks: what waits for it is bounded, all problems are accounted
// for, and it is told of those that come when it is back.
func TestAnOnErrorThatBlocks(t *testing.T) {
	onStage(t, jetstream.ConsumerConfig{}, func(t *testing.T, s *stage) {
		const n, attempts = 2500, 4
		release := make(chan struct{})
		var told errorList
		r := s.consume(alwaysFails, MaxAttempts(attempts), OnError(func(err error) {
			<-release
			told.add(err)
		}))
		s.publish(n)
		pass(time.Minute)
		require.Equal(t, n, s.count("+TERM", 0), "handlers are not held up")
		notices := s.sub.engine.notices
		notices.mu.Lock()
		waiting := len(notices.queue)
		notices.mu.Unlock()
		require.LessOrEqual(t, waiting, problemsMost+1)
		require.Len(t, s.logs.with("OnError does not keep up"), 1)

		close(release)
		synctest.Wait()
		errs := told.all()
		require.Equal(t, n*attempts, len(errs)-1+missedIn(t, errs[len(errs)-1]), "the last one counts the others")

		s.publish(1)
		pass(time.Second)
		require.Len(t, told.all(), len(errs)+attempts, "it hears of all again")
		require.NoError(t, r.stop())
	})
}

// TestASlowOnError hears of what it missed in the place of that.
func TestASlowOnError(t *testing.T) {
	onStage(t, jetstream.ConsumerConfig{}, func(t *testing.T, s *stage) {
		var told errorList
		r := s.consume(func(context.Context, *Msg) error { return Terminate("", errors.New("no")) }, OnError(func(err error) {
			<-time.After(time.Millisecond)
			told.add(err)
		}))
		const lots, lot = 6, 3000
		for range lots {
			s.publish(lot)
			pass(time.Second)
		}
		pass(time.Minute)
		require.NoError(t, r.stop())
		next, summaries := 1, 0
		for _, err := range told.all() {
			seq := 0
			if i := strings.Index(err.Error(), "stream sequence "); i >= 0 {
				_, scanned := fmt.Sscanf(err.Error()[i:], "stream sequence %d:", &seq)
				require.NoError(t, scanned)
				require.Equal(t, next, seq)
				next++
				continue
			}
			next += missedIn(t, err)
			summaries++
		}
		require.Equal(t, lots*lot+1, next)
		require.Positive(t, summaries)
		require.LessOrEqual(t, summaries, lots)
	})
}

// missedIn is how many problems err says that OnError was not told of.
func missedIn(t *testing.T, err error) (n int) {
	t.Helper()
	_, scanned := fmt.Sscanf(err.Error(), "jetpull: %d problems", &n)
	require.NoError(t, scanned, "%v", err)
	return n
}
