package work

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/jetpull/jetpull/broker/internal/domain"
)

// Dispatch makes the callbacks of the push consumers in this node's shards.
type Dispatch struct {
	*core
	jobs *Jobs
	// handOver is the token of the claims with which this node hands over jobs whose callbacks are in progress.
	handOver string

	mu       sync.RWMutex
	lanes    map[uint32]*lane  // of all push consumers, by number
	gainedAt map[int]time.Time // by shard
	closing  bool
}

// anyShard means all shards.
const anyShard = -1

// dispatch wakes the lanes of consumers that have jobs, until ctx ends.
func (d *Dispatch) dispatch(ctx context.Context) {
	for {
		ready := d.Index.Queue.Ready(ctx)
		if len(ready) == 0 {
			return
		}
		for _, number := range ready {
			d.look(number)
		}
	}
}

// look creates, updates or closes a consumer's lane, and wakes it.
func (d *Dispatch) look(number uint32) {
	c, known := d.Index.Consumer(number)
	push := known && c.Type == domain.Push
	d.mu.Lock()
	l := d.lanes[number]
	switch {
	case push && l == nil && !d.closing:
		l = newLane(d, c)
		if at, ok := d.gainedAt[l.shard]; ok && !c.CreatedAt.After(at) {
			l.gained() // the previous owner may have made callbacks of this consumer
		}
		d.lanes[number] = l
	case !push && l != nil:
		delete(d.lanes, number)
		l.close()
	}
	d.mu.Unlock()
	if !push || l == nil {
		return
	}
	if l.update(c); d.Shards.Owns(l.shard) {
		l.wake()
	}
}

func (d *Dispatch) lane(consumer uint32) *lane {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.lanes[consumer]
}

func (d *Dispatch) lanesOf(shard int) []*lane {
	d.mu.RLock()
	defer d.mu.RUnlock()
	lanes := make([]*lane, 0, len(d.lanes))
	for _, l := range d.lanes {
		if shard == anyShard || l.shard == shard {
			lanes = append(lanes, l)
		}
	}
	return lanes
}

func (d *Dispatch) gained(shard int) {
	d.mu.Lock()
	d.gainedAt[shard] = d.Now()
	d.mu.Unlock()
	for _, l := range d.lanesOf(shard) {
		l.gained()
		l.wake()
	}
}

// lost hands a shard over to another node. It first records which callbacks are in progress here.
func (d *Dispatch) lost(shard int) {
	ctx, cancel := context.WithTimeout(context.Background(), handOverTime)
	defer cancel()
	var wg sync.WaitGroup
	for _, l := range d.lanesOf(shard) {
		l.mu.Lock()
		jobs := slices.Collect(maps.Values(l.calling))
		l.mu.Unlock()
		for _, j := range jobs {
			wg.Go(func() { d.recordCall(ctx, j) })
		}
	}
	wg.Wait()
}

// recordCall records that a job is inflight, so that the next node does not take it. The order of this record and a concurrent outcome does not
// matter: after the outcome, there is nothing to hand over; before it, the outcome replaces this record.
func (d *Dispatch) recordCall(ctx context.Context, j domain.Job) {
	next, err := domain.Claim(j, d.handOver, 0, d.Now(), d.Rules.ClaimLimit())
	if err == nil {
		_, err = d.Records.PutJob(ctx, next)
	}
	if err != nil && !errors.Is(err, domain.ErrConflict) {
		d.Log.Info("another node may repeat a callback that is in progress", "job", j.ID, "error", err)
	}
}
