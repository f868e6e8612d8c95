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
	heavy   uint64 // the most that was held at a time
	weighed int
}

// wireSize is what a message without headers counts against PrefetchBytes.
func wireSize(m *jetpull.Msg) uint64 {
	return uint64(len(m.Subject()) + len(m.Reply()) + len(m.Data()))
}

// weigh is exact: while it has the lock no handler ends, so nothing of what has
// arrived is let go.
func (s *scales) weigh(done uint64) {
	s.scale.Lock()
	defer s.scale.Unlock()
	held := s.sub.Stats().Bytes - s.done
	s.heavy = max(s.heavy, held)
	s.weighed++
	s.done += done
}

func (s *scales) handler(d time.Duration) jetpull.Handler {
	h := s.checker.handler(d)
	return func(ctx context.Context, m *jetpull.Msg) error {
		s.weigh(0)
		err := h(ctx, m)
		s.weigh(wireSize(m))
		return err
	}
}

// clusterPrefetchBytes: on R3 the frame that ends a pull, which says how many
// bytes it brought, overtakes the messages. A new leader knows nothing of the
// pulls of the old one.
func clusterPrefetchBytes(t *testing.T, c *crew) {
	const (
		messages  = 1500
		least     = 100 // bytes of a message
		limit     = 20_000
		stepDowns = 3
	)
	sub := c.subscribe(t, jetstream.ConsumerConfig{AckWait: 2 * time.Second, MaxAckPending: -1})
	for i := range messages {
		_, err := c.js.PublishAsync(fmt.Sprintf("s.k%d", i%feedKeys), []byte(strings.Repeat("x", least+i*37%1900)))
		require.NoError(t, err)
	}
	receive(t, c.js.PublishAsyncComplete(), "all messages are stored")
	s := &scales{checker: newChecker(), sub: sub}
	run := consume(t, sub, s.handler(500*time.Microsecond), jetpull.Concurrency(4), byKey, jetpull.PrefetchBytes(limit))
	for i := range stepDowns {
		s.wait(t, (i+1)*messages/(stepDowns+1), electing)
		c.cluster.StepDownConsumer(t, "S", "C")
		s.fault(limit / least) // no more can be in flight
	}
	s.wait(t, messages, electing)
	consumerHas(t, c.js, "S", "C", func(i *jetstream.ConsumerInfo) bool { return i.AckFloor.Stream == messages }, "all are acknowledged")
	run.end(t)
	s.check(t, messages)
	s.scale.Lock()
	defer s.scale.Unlock()
	require.LessOrEqual(t, s.heavy, uint64(limit), "the most that was held at a time")
	require.Greater(t, s.heavy, uint64(limit/2), "the limit was put to use")
	t.Logf("%d bytes held at most, weighed %d times", s.heavy, s.weighed)
}
