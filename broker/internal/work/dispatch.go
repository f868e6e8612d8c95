package work

import (
	"context"
	"sync"

	"github.com/jetpull/jetpull/broker/internal/domain"
)

// anyShard stands for all of them.
const anyShard = -1

// consumerChanged makes, updates or closes the lane of a consumer.
func (b *Broker) consumerChanged(c domain.Consumer, removed bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closing {
		return
	}
	l := b.lanes[c.Number]
	push := c.Type == domain.Push && !removed
	switch {
	case push && l != nil:
		l.update(c)
	case push:
		l = newLane(b, c)
		b.lanes[c.Number] = l
	case l != nil:
		delete(b.lanes, c.Number)
		l.close()
		return
	default:
		return
	}
	l.wake() // there may be jobs already, and more room for callbacks
}

// jobQueued is called under the store's lock.
func (b *Broker) jobQueued(consumer uint32) {
	if l := b.lane(consumer); l != nil && b.store.Owns(l.shard) {
		l.wake()
	}
}

func (b *Broker) lane(consumer uint32) *lane {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return b.lanes[consumer]
}

func (b *Broker) lanesOf(shard int) []*lane {
	b.mu.RLock()
	defer b.mu.RUnlock()
	lanes := make([]*lane, 0, len(b.lanes))
	for _, l := range b.lanes {
		if shard == anyShard || l.shard == shard {
			lanes = append(lanes, l)
		}
	}
	return lanes
}

// gained starts the dispatching of a shard.
func (b *Broker) gained(shard int) {
	for _, l := range b.lanesOf(shard) {
		l.gained()
	}
}

// lost leaves a shard to another node, which is to know what is in progress here.
func (b *Broker) lost(shard int) {
	ctx, cancel := context.WithTimeout(context.Background(), handOverTime)
	defer cancel()
	var wg sync.WaitGroup
	for _, l := range b.lanesOf(shard) {
		wg.Go(func() { l.handOver(ctx) })
	}
	wg.Wait()
}
