package work

import (
	"context"
	"sync"

	"github.com/jetpull/jetpull/broker/internal/domain"
)

// Dispatch makes the callbacks of the push consumers whose shards are this node's.
type Dispatch struct {
	*core
	jobs   *Jobs
	shards Shards
	events *notifier
	due    *dueQueue
	poster Poster
	// handOver is the token of the claims by which jobs are handed over that have callbacks in progress here.
	handOver string

	mu      sync.RWMutex
	lanes   map[uint32]*lane // of all push consumers
	closing bool
}

// anyShard stands for all of them.
const anyShard = -1

// consumerChanged makes, updates or closes the lane of a consumer.
func (d *Dispatch) consumerChanged(c domain.Consumer, removed bool) {
	l, breakerClosed := d.changeLane(c, removed)
	if breakerClosed {
		d.events.tell(EventClosed, c, "resumed")
	}
	if l != nil {
		l.wake() // there may be jobs already, and more room for callbacks
	}
}

// changeLane returns the lane of a push consumer, which has its settings then.
func (d *Dispatch) changeLane(c domain.Consumer, removed bool) (l *lane, breakerClosed bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closing {
		return nil, false
	}
	l = d.lanes[c.Number]
	push := c.Type == domain.Push && !removed
	switch {
	case push && l != nil:
		return l, l.update(c)
	case push:
		l = newLane(d, c)
		d.lanes[c.Number] = l
		return l, false
	case l != nil:
		delete(d.lanes, c.Number)
		l.close()
	}
	return nil, false
}

// jobQueued has the lane of a consumer look for another job.
func (d *Dispatch) jobQueued(consumer uint32) {
	if l := d.lane(consumer); l != nil && d.shards.Owns(l.shard) {
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

// gained starts the dispatching of a shard.
func (d *Dispatch) gained(shard int) {
	for _, l := range d.lanesOf(shard) {
		l.gained()
	}
}

// lost leaves a shard to another node, which is to know what is in progress here.
func (d *Dispatch) lost(shard int) {
	ctx, cancel := context.WithTimeout(context.Background(), handOverTime)
	defer cancel()
	var wg sync.WaitGroup
	for _, l := range d.lanesOf(shard) {
		wg.Go(func() { l.handOver(ctx) })
	}
	wg.Wait()
}
