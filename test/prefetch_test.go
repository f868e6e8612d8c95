package test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull"
)

// scales weigh what a Consume holds: what has arrived, by its Stats, less what
// its handlers are done with.
type scales struct {
	*checker
	sub *jetpull.Subscription

	scale   sync.Mutex
	done    uint64 // bytes that handlers are done with
	again   uint64 // messages delivered again that a handler was given
	heavy   uint64 // the most that was held at a time
	weighed int
}

// wireSize is what a message without headers counts against PrefetchBytes.
func wireSize(m *jetpull.Msg) uint64 {
	return uint64(len(m.Subject()) + len(m.Reply()) + len(m.Data()))
}

// weigh is exact: while it has the lock no handler ends, so nothing of what has
// arrived is let go. It cannot be so once a message has come again that was handled
// before: Consume settles it by itself.
func (s *scales) weigh(m *jetpull.Msg, done bool) {
	s.scale.Lock()
	defer s.scale.Unlock()
	if !done && m.Delivered() > 1 {
		s.again++
	}
	if st := s.sub.Stats(); st.Redelivered == s.again {
		s.heavy = max(s.heavy, st.Bytes-s.done)
		s.weighed++
	}
	if done {
		s.done += wireSize(m)
	}
}

// reset begins anew when nothing is held.
func (s *scales) reset(t *testing.T) {
	t.Helper()
	eventually(t, func() error {
		s.scale.Lock()
		defer s.scale.Unlock()
		st := s.sub.Stats()
		if st.Buffered+st.Running > 0 {
			return fmt.Errorf("%d messages wait, %d are being handled", st.Buffered, st.Running)
		}
		s.done, s.again = st.Bytes, st.Redelivered
		return nil
	}, "nothing is held")
}

func (s *scales) handler(d time.Duration) jetpull.Handler {
	h := s.checker.handler(d)
	return func(ctx context.Context, m *jetpull.Msg) error {
		s.weigh(m, false)
		err := h(ctx, m)
		s.weigh(m, true)
		return err
	}
}

// clusterPrefetchBytes: on R3 the frame that ends a pull, which says how many
// bytes it brought, overtakes the messages. A new leader knows nothing of the
// pulls of the old one.
func clusterPrefetchBytes(t *testing.T, c *crew) {
	const (
		stepDowns = 3
		burst     = 500
		messages  = (stepDowns + 1) * burst
		least     = 100 // bytes of a message
		limit     = 20_000
	)
	sub := c.subscribe(t, jetstream.ConsumerConfig{AckWait: 2 * time.Second, MaxAckPending: -1})
	s := &scales{checker: newChecker(), sub: sub}
	run := consume(t, sub, s.handler(500*time.Microsecond), jetpull.Concurrency(4), byKey, jetpull.PrefetchBytes(limit))
	for i := range stepDowns + 1 {
		s.reset(t)
		for j := range burst {
			_, err := c.js.PublishAsync(fmt.Sprintf("s.k%d", j%feedKeys), []byte(strings.Repeat("x", least+j*37%1900)))
			require.NoError(t, err)
		}
		if i < stepDowns {
			s.wait(t, i*burst+burst/4, electing)
			c.cluster.StepDownConsumer(t, "S", "C")
			s.Fault(s.inFlight(t, c.js, nil))
		}
		receive(t, c.js.PublishAsyncComplete(), "all messages are stored")
		settled := uint64((i + 1) * burst)
		consumerHas(t, c.js, "S", "C", func(i *jetstream.ConsumerInfo) bool { return i.AckFloor.Stream == settled }, "all are acknowledged")
	}
	run.end(t)
	s.check(t, messages)
	s.scale.Lock()
	defer s.scale.Unlock()
	require.LessOrEqual(t, s.heavy, uint64(limit), "the most that was held at a time")
	require.Greater(t, s.heavy, uint64(limit/2), "the limit was put to use")
	require.Greater(t, s.weighed, messages/2, "of two times a message")
	t.Logf("%d bytes held at most, weighed %d times", s.heavy, s.weighed)
}
