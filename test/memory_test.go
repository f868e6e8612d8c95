package test

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/internal/natstest"
)

// heap is what is allocated and in use.
func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// TestMemoryAfterTraffic is not parallel: it weighs the process. The server is another one, and the connection was there before.
func TestMemoryAfterTraffic(t *testing.T) {
	const (
		consumes = 30
		messages = 6000
		limit    = 24 << 10 // of one Consume that is idle again, over one that has had nothing
	)
	if testing.Short() {
		t.Skip("what it weighs is another under the race detector; make test runs it without")
	}
	srv := newChild(t)
	for name, tc := range map[string]struct {
		maxAckPending int
		busy          bool // a message is in its handler while it is weighed
	}{
		"idle":                        {maxAckPending: 1000},
		"in use, with 64 ack pending": {maxAckPending: 64, busy: true},
	} {
		t.Run(name, func(t *testing.T) {
			nc := connect(t, srv.url)
			js := natstest.JetStream(t, nc)
			natstest.StreamWith(t, js, jetstream.StreamConfig{Name: "S", Subjects: []string{"s.>"}, Storage: jetstream.MemoryStorage})
			defer func() { require.NoError(t, js.DeleteStream(context.WithoutCancel(t.Context()), "S")) }()
			var handled atomic.Int64
			count := func() int { return int(handled.Load()) }
			hold := make(chan struct{})
			runs := make([]*consuming, consumes)
			for i := range runs {
				name := fmt.Sprintf("C%d", i)
				natstest.Consumer(t, js, "S", jetstream.ConsumerConfig{
					Durable: name, MaxAckPending: tc.maxAckPending, AckWait: 4 * time.Second,
					MemoryStorage: true,
				})
				runs[i] = consume(t, subscribe(t, js, "S", name), func(_ context.Context, m *jetpull.Msg) error {
					handled.Add(1)
					if m.Subject() == "s.hold" {
						<-hold
					}
					return nil
				}, jetpull.Concurrency(2))
			}
			weigh := func(n int) uint64 {
				t.Helper()
				want := count() + n*consumes
				publishApart(t, srv.url, n)
				reaches(t, want, "all are handled", count)
				return heap()
			}
			if tc.busy {
				_, err := js.Publish(t.Context(), "s.hold", nil)
				require.NoError(t, err)
				reaches(t, consumes, "a handler is busy everywhere", count)
				before := weigh(1000)
				require.LessOrEqual(t, weigh(messages), before+consumes*limit, "it grows with the messages")
			} else {
				before := heap()
				weigh(messages)
				eventually(t, func() error {
					if now := heap(); now > before+consumes*limit {
						return fmt.Errorf("%d bytes for each Consume", (now-before)/consumes)
					}
					return nil
				}, "what the traffic took is given back")
			}
			close(hold)
			for _, run := range runs {
				run.end(t)
			}
		})
	}
}

// publishApart publishes over a connection that is gone when it returns.
func publishApart(t *testing.T, url string, n int) {
	t.Helper()
	nc, err := nats.Connect(url)
	require.NoError(t, err)
	defer nc.Close()
	natstest.Publish(t, natstest.JetStream(t, nc), "s.a", n)
}
