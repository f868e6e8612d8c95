package broker

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// Items come up at their time, the earliest first, whatever the order in which
// they were added.
func TestDueQueueInVirtualTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newDueQueue()
		begin := time.Now()
		type firing struct {
			seq   uint64
			after time.Duration
		}
		var fired []firing
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			q.run(ctx, func(_ context.Context, item dueItem) {
				fired = append(fired, firing{item.id.Seq, time.Since(begin)})
				if item.id.Seq == 1 {
					q.add(dueItem{at: begin.Add(90 * time.Second), id: JobID{Seq: 9}})
				}
			})
		}()
		add := func(seq uint64, after time.Duration) { q.add(dueItem{at: begin.Add(after), id: JobID{Seq: seq}}) }
		add(3, 3*time.Hour)
		synctest.Wait()
		add(1, time.Minute)
		add(2, 2*time.Minute)
		add(0, -time.Minute)
		time.Sleep(4 * time.Hour)
		cancel()
		<-done
		require.Equal(t, []firing{{0, 0}, {1, time.Minute}, {9, 90 * time.Second}, {2, 2 * time.Minute}, {3, 3 * time.Hour}}, fired)
	})
}
