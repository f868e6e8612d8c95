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

// memory has the messages that were settled last. A server redelivers a message whose acknowledgement was lost with
// a connection, or whose delivery it forgot in a crash. Such a message is settled again, without a handler.
type memory struct {
	ids         []ID
	settlements []Settlement
	oldest      int     // once the memory is full
	lastAt      pull.At //  when something was last added
}

// add stores a settlement, and drops the oldest beyond most.
func (m *memory) add(now pull.At, id ID, how Settlement, most int) {
	if how != Acked && how != Terminated || most == 0 {
		return
	}
	m.lastAt = now
	switch {
	case len(m.ids) < most:
		m.ids, m.settlements = append(m.ids, id), append(m.settlements, how)
	default:
		m.ids[m.oldest], m.settlements[m.oldest] = id, how
		m.oldest = (m.oldest + 1) % len(m.ids)
	}
}

// settlement returns how a message was settled; Undecided if it is not known.
func (m *memory) settlement(id ID) Settlement {
	if i := slices.Index(m.ids, id); i >= 0 {
		return m.settlements[i]
	}
	return Undecided
}
