package work

import (
	"container/heap"
	"context"
	"sync"
	"time"

	"github.com/jetpull/jetpull/broker/internal/domain"
)

// dueItem is something that happens to a job at a time, if the job still has
// the revision then. With sequence 0 it is the consumer's lane that looks again.
type dueItem struct {
	at       time.Time
	id       domain.JobID
	revision uint64
}

// dueQueue calls for items when their time comes. An item whose job changed
// meanwhile is not looked for but left to come up and be ignored.
type dueQueue struct {
	mu    sync.Mutex
	items dueHeap
	wake  chan struct{} // holds a token when the first item changed
}

func newDueQueue() *dueQueue { return &dueQueue{wake: make(chan struct{}, 1)} }

func (q *dueQueue) add(item dueItem) {
	q.mu.Lock()
	heap.Push(&q.items, item)
	first := q.items[0] == item
	q.mu.Unlock()
	if first {
		select {
		case q.wake <- struct{}{}:
		default:
		}
	}
}

// pop takes the first item if its time has come; otherwise it tells how long
// that takes.
func (q *dueQueue) pop(now time.Time) (item dueItem, ok bool, wait time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.items) == 0 {
		return dueItem{}, false, time.Hour
	}
	if wait = q.items[0].at.Sub(now); wait > 0 {
		return dueItem{}, false, wait
	}
	return heap.Pop(&q.items).(dueItem), true, 0
}

func (q *dueQueue) run(ctx context.Context, fire func(context.Context, dueItem)) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for ctx.Err() == nil {
		item, ok, wait := q.pop(time.Now())
		if ok {
			fire(ctx, item)
			continue
		}
		timer.Reset(wait)
		select {
		case <-timer.C:
		case <-q.wake:
		case <-ctx.Done():
		}
	}
}

type dueHeap []dueItem

func (h dueHeap) Len() int           { return len(h) }
func (h dueHeap) Less(i, j int) bool { return h[i].at.Before(h[j].at) }
func (h dueHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *dueHeap) Push(x any)        { *h = append(*h, x.(dueItem)) }
func (h *dueHeap) Pop() any {
	old := *h
	x := old[len(old)-1]
	*h = old[:len(old)-1]
	return x
}
