package jetpull

import (
	"bytes"
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/internal/natstest"
)

// storeMany stores n messages that share one body.
func (s *stage) storeMany(n, size int) {
	body := bytes.Repeat([]byte("x"), size)
	s.do(func() {
		for range n {
			s.stored = append(s.stored, natstest.Data{Subject: "s.a", Body: body})
		}
		s.serve()
	})
}

// weigher knows what has arrived and is not done with yet.
type weigher struct {
	sub  *Subscription
	mu   sync.Mutex
	done uint64
	most uint64
	n    int
}

func (w *weigher) weigh(done int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.most = max(w.most, w.sub.Stats().Bytes-w.done)
	w.done += uint64(done)
	if done > 0 {
		w.n++
	}
}

func (w *weigher) handled() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.n
}

// TestTheAdaptiveWindowIsBoundedInBytes: large messages behind small ones meet a
// window that knows only the small ones.
func TestTheAdaptiveWindowIsBoundedInBytes(t *testing.T) {
	for name, tt := range map[string]struct {
		cfg   jetstream.ConsumerConfig
		sizes []int // of the large ones, in turn
		opts  []Option
		most  uint64 // MiB
	}{
		"512 KiB":                {sizes: []int{512 << 10}, most: 64},
		"four workers":           {sizes: []int{512 << 10}, opts: []Option{Concurrency(4)}, most: 64},
		"MaxAckPending":          {cfg: jetstream.ConsumerConfig{MaxAckPending: 1000}, sizes: []int{512 << 10}, most: 64},
		"ack policy none":        {cfg: jetstream.ConsumerConfig{AckPolicy: jetstream.AckNonePolicy}, sizes: []int{512 << 10}, most: 64},
		"ack policy all":         {cfg: jetstream.ConsumerConfig{AckPolicy: jetstream.AckAllPolicy}, sizes: []int{512 << 10}, most: 64},
		"MaxRequestBatch":        {cfg: jetstream.ConsumerConfig{MaxRequestBatch: 20}, sizes: []int{2 << 20}, most: 64},
		"MaxRequestMaxBytes":     {cfg: jetstream.ConsumerConfig{MaxRequestMaxBytes: 100_000}, sizes: []int{300_000}, most: 64},
		"sizes in turn":          {sizes: []int{10, 3 << 20, 200, 20 << 20, 100 << 10}, most: 64},
		"larger than one's part": {sizes: []int{40 << 20}, most: 64},
		"larger than all":        {sizes: []int{70 << 20, 100}, most: 72},
		"PrefetchBytes":          {sizes: []int{512 << 10}, opts: []Option{PrefetchBytes(80 << 20)}, most: 80},
	} {
		t.Run(name, func(t *testing.T) {
			tt.cfg.AckWait = time.Hour
			onStage(t, tt.cfg, func(t *testing.T, s *stage) {
				const small = 20_000
				s.storeMany(small, 1)
				w := &weigher{sub: s.sub}
				r := s.consume(func(_ context.Context, m *Msg) error {
					w.weigh(0)
					if m.Sequence() > small {
						<-time.After(20 * time.Millisecond)
					}
					w.weigh(m.size())
					return nil
				}, tt.opts...)
				pass(5 * time.Second)
				require.Equal(t, small, w.handled())
				large := 0
				for bytes := 0; bytes < 180<<20; large++ {
					size := tt.sizes[large%len(tt.sizes)]
					s.storeMany(1, size)
					bytes += size
				}
				pulls := s.pullCount()
				for range 200 {
					pass(100 * time.Millisecond)
					w.weigh(0)
				}
				require.Equal(t, small+large, w.handled(), "none is kept back")
				require.LessOrEqual(t, float64(w.most)/(1<<20), float64(tt.most), "MiB held at most")
				require.Less(t, s.pullCount()-pulls, 3*large+20, "pulls for %d messages", large)
				require.NoError(t, r.stop())
				synctest.Wait()
			})
		})
	}
}
