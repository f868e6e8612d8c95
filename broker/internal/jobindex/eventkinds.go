package jobindex

import (
	"slices"

	"github.com/jetpull/jetpull/broker/internal/domain"
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
func (k *consumerIndex) wants(e Entry) bool {
	return k.consumer.Wants(e.Seq, k.channel.kinds.name(e.kind))
}

// refilter takes over a consumer's new settings. News of a change of its event types may come after the first
// messages that it is for.
func (k *consumerIndex) refilter(consumer domain.Consumer) {
	old := k.consumer
	k.consumer = consumer
	if len(consumer.Filters) == 0 || slices.Equal(old.Filters, consumer.Filters) {
		return
	}
	k.channel.messages.ascend(&Entry{Seq: consumer.Filters[len(consumer.Filters)-1].Since}, func(e Entry) bool {
		if _, recorded := k.recorded(e.Seq); recorded {
			return true
		}
		before, now := old.Wants(e.Seq, k.channel.kinds.name(e.kind)), k.wants(e)
		switch {
		case before && !now:
			k.leave(k.fresh(e))
			delete(k.taken, e.Seq)
		case !before && now:
			k.enter(k.fresh(e))
		}
		return true
	})
}
