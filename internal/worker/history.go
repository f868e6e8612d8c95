package worker

import (
	"slices"

	"github.com/jetpull/jetpull/internal/pull"
)

// Settlement is how a message was settled.
type Settlement uint8

// The settlements.
const (
	Undecided  Settlement = iota // it may be delivered again
	Acked                        // acknowledged
	Terminated                   // never to be delivered again
	Naked                        // handed back by its handler
)

// history is what a pool knows of the messages that were delivered to it, and that it may not hold any more.
type history struct {
	highest uint64 // stream sequence
	checked uint64 // highest at the last check
	number  uint64 // the consumer's, of the last delivery

	// The messages that were settled last. A server redelivers a message whose acknowledgement was lost with a connection, or whose
	// delivery it forgot in a crash. Such a message is settled again, without a handler.
	ids         []ID
	settlements []Settlement
	oldest      int     // once the memory is full
	lastAt      pull.At // when something was last added
}

// delivered takes in how often a message was delivered, and the consumer's number of this delivery. If the consumer was reset, to deliver its
// messages again, it forgets those that were settled. Messages that are held then are handled after the reset. Numbers grow. One that does not
// is of a server that crashed and has forgotten deliveries, or of a consumer that was reset, or on three servers it was overtaken by a
// redelivery. After a reset all counts and numbers start again at 1, and a crash forgets the last deliveries alone. So a message that was here
// before, counts as delivered once and has a number of at most half was delivered after a reset. A crash right after the consumer was created
// looks the same.
func (h *history) delivered(id ID, count, number uint64) {
	if number > 0 && number <= (h.number+1)/2 && count <= 1 && id.Seq <= h.highest {
		h.forget()
	}
	h.number = number
}

// add remembers a settlement, and drops the oldest beyond most.
func (h *history) add(now pull.At, id ID, how Settlement, most int) {
	if how != Acked && how != Terminated || most == 0 {
		return
	}
	h.lastAt = now
	if len(h.ids) < most {
		h.ids, h.settlements = append(h.ids, id), append(h.settlements, how)
		return
	}
	h.ids[h.oldest], h.settlements[h.oldest] = id, how
	h.oldest = (h.oldest + 1) % len(h.ids)
}

// settlement returns how a message was settled; Undecided if it is not known.
func (h *history) settlement(id ID) Settlement {
	if i := slices.Index(h.ids, id); i >= 0 {
		return h.settlements[i]
	}
	return Undecided
}

// forget forgets all messages that were settled.
func (h *history) forget() { h.ids, h.settlements, h.oldest = nil, nil, 0 }
