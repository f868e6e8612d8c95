package jetpull_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/internal/natstest/model"
	"github.com/jetpull/jetpull/internal/natstest/stage"
)

// How much is held follows the handlers' speed: workers never wait for messages
// that are there, and none waits for more than a quarter of AckWait.
func TestAdaptiveWindow(t *testing.T) {
	on(t, jetstream.ConsumerConfig{AckWait: 8 * time.Second, MaxAckPending: -1}, func(t *testing.T, w *world) {
		var takes atomic.Int64
		w.Publish(3000)
		w.consume(func(ctx, *jetpull.Msg) error {
			if d := time.Duration(takes.Load()); d > 0 {
				<-time.After(d)
			}
			return nil
		})
		stage.Pass(0)
		require.Greater(t, w.sub.Stats().Window, 300, "a fast handler reads far ahead")
		require.LessOrEqual(t, w.sub.Stats().Window, 1792)
		takes.Store(int64(30 * time.Millisecond))
		w.Publish(4000)
		stage.Pass(100 * time.Second) // enough to work off what was read ahead before
		st := w.sub.Stats()
		require.InDelta(t, 66, st.Window, 3, "2 s, a quarter of AckWait, at 30 ms a message")
		require.LessOrEqual(t, st.Buffered+st.Running, 70)
		require.Positive(t, st.Buffered)
	})
}

// A server that has reached MaxAckPending delivers as many messages again a round trip later, on any link: a pull is there when the
// acknowledgements are.
func TestMaxAckPendingIsOutstandingOnAnyLink(t *testing.T) {
	const trips = 10
	for _, most := range []int{10, 256, 1000} {
		for _, oneWay := range []time.Duration{2 * time.Millisecond, 50 * time.Millisecond} {
			t.Run(fmt.Sprint(most, oneWay), func(t *testing.T) {
				link := model.Delay{Min: oneWay, Max: oneWay}
				onStage(t, stage.Config{Model: model.Config{Up: link, Down: link}, Consumer: jetstream.ConsumerConfig{MaxAckPending: most}}, func(_ *testing.T, w *world) {
					w.Publish(trips * most)
					w.consume(taking(&w.j, 0))
					w.soon(trips*2*oneWay*5/4, "a round trip for each MaxAckPending messages", func() bool { return w.j.Len() == trips*most })
				})
			})
		}
	}
}

// Bytes held stay within their limit, by default about 64 MiB, though large
// messages come behind small ones; what is larger alone comes when nothing else is
// held, and none is kept back.
func TestBytesHeldAreBounded(t *testing.T) {
	const mib = 1 << 20
	for name, tt := range map[string]struct {
		cfg          jetstream.ConsumerConfig
		small, total int
		sizes        []int // of the large ones, in turn
		opts         []jetpull.Option
		most         int
	}{
		"MaxRequestMaxBytes": {cfg: jetstream.ConsumerConfig{MaxRequestMaxBytes: 100_000}, small: 100, total: 10 * mib, sizes: []int{300_000}, most: 64 * mib},
		"sizes in turn":      {small: 5000, total: 160 * mib, sizes: []int{10, 3 * mib, 200, 20 * mib, 100 << 10}, most: 64 * mib},
		"PrefetchBytes":      {total: 60_000, sizes: []int{100, 100, 100, 100, 9000}, opts: []jetpull.Option{jetpull.PrefetchBytes(1000)}, most: 9100},
	} {
		t.Run(name, func(t *testing.T) {
			tt.cfg.AckWait, tt.cfg.MaxAckPending = time.Hour, 10_000
			on(t, tt.cfg, func(t *testing.T, w *world) {
				var done, most, handled atomic.Int64
				w.consume(func(_ ctx, m *jetpull.Msg) error {
					most.Store(max(most.Load(), int64(w.sub.Stats().Bytes)-done.Load()))
					if m.Sequence() > uint64(tt.small) {
						<-time.After(20 * time.Millisecond)
					}
					done.Add(int64(len(m.Subject()) + len(m.Reply()) + len(m.Data())))
					handled.Add(1)
					return nil
				}, tt.opts...)
				w.Publish(tt.small)
				stage.Pass(5 * time.Second)
				bodies, large := map[int]string{}, 0
				for _, size := range tt.sizes {
					bodies[size] = strings.Repeat("x", size)
				}
				if testing.Short() {
					tt.total = min(tt.total, tt.most+8*mib)
				}
				for bytes := 0; bytes < tt.total; large++ {
					size := tt.sizes[large%len(tt.sizes)]
					w.PublishTo("s.a", nil, bodies[size])
					bytes += size
				}
				pulls := len(w.Pulls())
				stage.Pass(30 * time.Second)
				require.EqualValues(t, tt.small+large, handled.Load(), "none is kept back")
				require.LessOrEqual(t, int(most.Load()), tt.most, "bytes held at most")
				require.Less(t, len(w.Pulls())-pulls, 3*large+20, fmt.Sprintf("pulls for %d messages", large))
			})
		})
	}
}

// Two pulls of a Consume, or a quarter of MaxWaiting, wait at the server at most, so that other clients find a place.
func TestConsumeLeavesMaxWaitingToOthers(t *testing.T) {
	on(t, jetstream.ConsumerConfig{MaxWaiting: 4}, func(t *testing.T, w *world) {
		most := 0
		w.consume(func(ctx, *jetpull.Msg) error {
			most = max(most, w.C().State().NumWaiting)
			return nil
		})
		for range 50 {
			w.Publish(7)
			stage.Pass(milli)
		}
		require.Equal(t, 2, most)
	})
}
