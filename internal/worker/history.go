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

// history records deliveries to a pool, including messages that the pool does not hold any more.
type history struct {
	highest uint64 // highest stream sequence
	checked uint64 // highest at the last check
	number  uint64 // consumer sequence of the last delivery

	// The messages that were settled last. A server redelivers a message if its acknowledgement was lost with a connection, or if the
	// server forgot the delivery in a crash. Such a message is settled again, without a handler.
	ids         []ID
	settlements []Settlement
	oldest      int     // index of the oldest, when the memory is full
	lastAt      pull.At // when something was last added
}

// delivered records a delivery: the message's delivery count, and the consumer's number of the delivery. If the consumer was reset, so that it
// delivers its messages again, delivered forgets the settled messages. Messages that are held at that time are handled after the reset. Numbers
// grow. There are three reasons for a lower one: a server crashed and forgot deliveries, the consumer was reset, or on three servers a redelivery
// overtook the delivery. After a reset all counts and numbers start again at 1, whereas a crash forgets only the last deliveries. So a message
// that was here before, has the count 1 and a number of at most half was delivered after a reset. A crash soon after the consumer was created
// looks the same.
func (h *history) delivered(id ID, count, number uint64) {
	if number > 0 && number <= (h.number+1)/2 && count <= 1 && id.Seq <= h.highest {
		h.forget()
	}
	h.number = number
}

// add remembers a settlement. If there are more than most, it drops the oldest.
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

// settlement returns how a message was settled, or Undecided if that is not known.
func (h *history) settlement(id ID) Settlement {
	if i := slices.Index(h.ids, id); i >= 0 {
		return h.settlements[i]
	}
	return Undecided
}

// forget forgets all settled messages.
func (h *history) forget() { h.ids, h.settlements, h.oldest = nil, nil, 0 }
