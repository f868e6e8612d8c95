package jetpull

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/internal/natstest"
)

// fetched returns n messages that wait for their acknowledgement.
func (s *stage) fetched(n int) []*Msg {
	s.t.Helper()
	s.publish(n)
	msgs, err := s.sub.Fetch(s.t.Context(), n)
	require.NoError(s.t, err)
	require.Len(s.t, msgs, n)
	return msgs
}

func TestOutbox(t *testing.T) {
	onStage(t, jetstream.ConsumerConfig{}, func(t *testing.T, s *stage) {
		var errs errorList
		o := newOutbox(errs.add)
		msgs := s.fetched(outboxMost + 10)
		acked := func() int {
			synctest.Wait()
			return s.ackedCount()
		}
		o.ack(msgs[0], false)
		require.Equal(t, 1, acked(), "at once where there is nothing else to do")
		o.ack(msgs[1], true)
		o.ack(msgs[2], true)
		require.Equal(t, 1, acked())
		pass(outboxFor)
		require.Equal(t, 3, acked(), "when their time is over")
		o.ack(msgs[3], true)
		o.ack(msgs[4], false)
		require.Equal(t, 5, acked(), "with the last one")
		for _, m := range msgs[5 : 5+outboxMost-1] {
			o.ack(m, true)
		}
		require.Equal(t, 5, acked())
		o.ack(msgs[5+outboxMost-1], true)
		require.Equal(t, 5+outboxMost, acked(), "when there are enough")
		o.ack(msgs[6+outboxMost], true)
		o.close()
		require.Equal(t, 6+outboxMost, acked(), "at the end")
		o.ack(msgs[7+outboxMost], true)
		require.Equal(t, 7+outboxMost, acked(), "and at once after it")
		s.nc.Close()
		o.ack(msgs[8+outboxMost], true)
		require.ErrorIs(t, errs.all()[0], ErrClosed)
	})
}

// The acknowledgements of handlers that end while others have more to do leave
// within outboxFor, although no other handler ends.
func TestConsumeAcknowledgesSideBySide(t *testing.T) {
	onStage(t, jetstream.ConsumerConfig{}, func(t *testing.T, s *stage) {
		s.publish(10)
		r := s.consume(func(_ context.Context, m *Msg) error {
			if m.Sequence() > 2 {
				<-time.After(time.Second)
			}
			return nil
		}, Concurrency(2))
		pass(outboxFor)
		require.Equal(t, 2, s.ackedCount())
		pass(10 * time.Second)
		require.Equal(t, 10, s.ackedCount())
		require.NoError(t, r.stop())
	})
}

// TestOutboxCloseWaitsForWhatIsBeingSent: the timer can be at it.
func TestOutboxCloseWaitsForWhatIsBeingSent(t *testing.T) {
	nc := natstest.RunServer(t).Connect(t)
	nc.Close()
	sending, release := make(chan struct{}), make(chan struct{})
	events := make(chan string, 2)
	o := newOutbox(func(error) {
		close(sending)
		<-release
		events <- "sent"
	})
	o.ack(&Msg{sub: &Subscription{nc: nc}, raw: &nats.Msg{Reply: "$JS.ACK.S.C.1.1.1.1.0"}}, true)
	<-sending
	go func() {
		o.close()
		events <- "closed"
	}()
	for closed := false; !closed; runtime.Gosched() {
		o.mu.Lock()
		closed = o.closed
		o.mu.Unlock()
	}
	close(release)
	require.Equal(t, "sent", <-events)
	require.Equal(t, "closed", <-events)
}
