package worker

import (
	"slices"

	"github.com/jetpull/jetpull/internal/pull"
)

// Outcome is how a message was settled.
type Outcome uint8

// The outcomes.
const (
	Undecided  Outcome = iota // it may be delivered again
	Acked                     // acknowledged
	Terminated                // never to be delivered again
	Naked                     // handed back by its handler
)

// memory has the messages that were settled last. A server redelivers a message whose acknowledgement was lost with
// a connection, or whose delivery it forgot in a crash. Such a message is settled again, without a handler.
type memory struct {
	ids      []ID
	outcomes []Outcome
	oldest   int     // once the memory is full
	lastAt   pull.At //  when something was last added
}

// add stores an outcome, and drops the oldest beyond most.
func (m *memory) add(now pull.At, id ID, o Outcome, most int) {
	if o != Acked && o != Terminated || most == 0 {
		return
	}
	m.lastAt = now
	switch {
	case len(m.ids) < most:
		m.ids, m.outcomes = append(m.ids, id), append(m.outcomes, o)
	default:
		m.ids[m.oldest], m.outcomes[m.oldest] = id, o
		m.oldest = (m.oldest + 1) % len(m.ids)
	}
}

// outcome returns the outcome of a message; Undecided if it is not known.
func (m *memory) outcome(id ID) Outcome {
	if i := slices.Index(m.ids, id); i >= 0 {
		return m.outcomes[i]
	}
	return Undecided
}
