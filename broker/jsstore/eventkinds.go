package jsstore

import (
	"fmt"
	"slices"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull/broker"
)

// eventKinds numbers the event types of a channel's messages, so that one costs a message no memory. A type that no
// message has any more gives its number back. The zero value is ready: 0 is no type.
type eventKinds struct {
	number map[string]uint32
	names  []string // of number n at n-1
	uses   []int
	free   []uint32
}

// enter returns the number of a type for another message.
func (k *eventKinds) enter(name string) uint32 {
	if name == "" {
		return 0
	}
	n, ok := k.number[name]
	if !ok {
		n = k.take(name)
	}
	k.uses[n-1]++
	return n
}

func (k *eventKinds) take(name string) uint32 {
	if k.number == nil {
		k.number = map[string]uint32{}
	}
	if last := len(k.free) - 1; last >= 0 {
		n := k.free[last]
		k.free = k.free[:last]
		k.names[n-1], k.number[name] = name, n
		return n
	}
	k.names, k.uses = append(k.names, name), append(k.uses, 0)
	n := uint32(len(k.names))
	k.number[name] = n
	return n
}

// leave is called for a message that is gone.
func (k *eventKinds) leave(n uint32) {
	if n == 0 {
		return
	}
	if k.uses[n-1]--; k.uses[n-1] == 0 {
		delete(k.number, k.names[n-1])
		k.names[n-1] = ""
		k.free = append(k.free, n)
	}
}

func (k *eventKinds) name(n uint32) string {
	if n == 0 {
		return ""
	}
	return k.names[n-1]
}

// wants tells whether a message makes a job, if it has no record.
func (k *consumerIndex) wants(e entry) bool {
	return k.consumer.Wants(e.seq, k.channel.kinds.name(e.kind))
}

// refilter takes over a consumer's new settings. News of a change of its event types may come after the first
// messages that it is for.
func (x *index) refilter(k *consumerIndex, consumer broker.Consumer) {
	old := k.consumer
	k.consumer = consumer
	if len(consumer.Filters) == 0 || slices.Equal(old.Filters, consumer.Filters) {
		return
	}
	k.channel.messages.ascend(&entry{seq: consumer.Filters[len(consumer.Filters)-1].Since}, func(e entry) bool {
		if _, recorded := k.recorded(e.seq); recorded {
			return true
		}
		before, now := old.Wants(e.seq, k.channel.kinds.name(e.kind)), k.wants(e)
		switch {
		case before && !now:
			k.leave(k.fresh(e))
			delete(k.taken, e.seq)
		case !before && now:
			x.enter(k, k.fresh(e))
		}
		return true
	})
}

// inForce are the event types that the last of some filters says.
func inForce(filters []broker.EventFilter) string {
	if len(filters) == 0 {
		return ""
	}
	return filters[len(filters)-1].Types
}

// maxFilters bounds the changes of a consumer's event types while messages from before them are kept.
const maxFilters = 100

// filtered adds the event types that a consumer is to have from now on to its filters, and leaves out those that no
// stored message is under any more.
func filtered(c broker.Consumer, state jetstream.StreamState) ([]broker.EventFilter, error) {
	filters := slices.Clone(c.Filters)
	if c.EventTypes != inForce(filters) {
		filters = append(filters, broker.EventFilter{Since: state.LastSeq, Types: c.EventTypes})
	}
	for len(filters) > 1 && filters[1].Since+1 <= state.FirstSeq {
		filters = filters[1:]
	}
	if len(filters) > maxFilters {
		return nil, fmt.Errorf("%w: eventTypes: changed %d times since the oldest message that is kept: wait until it is pruned", broker.ErrInvalid, maxFilters)
	}
	return filters, nil
}
