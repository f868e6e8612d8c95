package natstest

import (
	"fmt"
	"slices"
	"sync"
)

// History records the messages of a stream while a Consume handles them and faults
// are injected. At the end, it checks that
//
//   - every message was handled successfully,
//   - no message was handled again after its handler succeeded, or while it ran,
//   - the messages of each key were handled one at a time and in order, and after
//     a failed message, none of its key was handled until it was settled.
//
// The order is that of first deliveries. A fault may lose a message before any handler
// gets it; it is then redelivered after later ones were handled.
type History struct {
	mu       sync.Mutex
	calls    int // calls of handlers
	handled  int // messages that were handled successfully
	messages map[uint64]*past
	keys     map[string]*keyPast
	problems []string
	progress chan struct{} // closed when the next handler ends
}

// past is the record of one message.
type past struct {
	began, done int // calls of a handler, and successful ones
	running     bool
	failed      bool
	call        int // the number of its last call, among all calls
}

// keyPast is the record of the messages of one key.
type keyPast struct {
	last   uint64 // the last message, by first deliveries
	busy   []uint64
	failed []uint64 // failed messages that are not settled yet
}

// NewHistory returns an empty history.
func NewHistory() *History {
	return &History{messages: map[uint64]*past{}, keys: map[string]*keyPast{}, progress: make(chan struct{})}
}

// Begin records that a handler gets a message, and how often the server has delivered it. Messages with an empty key have no order.
func (h *History) Begin(key string, seq, delivered uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	m := h.message(seq)
	h.judge(m, seq, delivered)
	h.calls++
	m.began++
	m.running, m.failed, m.call = true, false, h.calls
	if key == "" {
		return
	}
	k := h.key(key)
	if len(k.busy) > 0 {
		h.problem("message %d of key %s was started while %d was being handled", seq, key, k.busy[0])
	}
	k.busy = append(k.busy, seq)
	for _, earlier := range k.failed {
		if earlier < seq {
			h.problem("message %d of key %s was started before %d, which had failed, was settled", seq, key, earlier)
		}
	}
	if delivered > 1 {
		return
	}
	if seq < k.last {
		h.problem("message %d of key %s was handled after %d", seq, key, k.last)
	}
	k.last = max(k.last, seq)
}

// judge compares a call of a handler with the previous one for the message.
func (h *History) judge(m *past, seq, delivered uint64) {
	if m.began == 0 || m.failed {
		return
	}
	state := "had succeeded"
	if m.running {
		state = "was running"
	}
	h.problem("message %d was handled again, though its handler %s (delivery %d, %d calls between)", seq, state, delivered, h.calls-m.call)
}

// End records the end of a handler and its error.
func (h *History) End(key string, seq uint64, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	m := h.message(seq)
	m.running, m.failed = false, err != nil
	if err == nil {
		h.handled += max(0, 1-m.done)
		m.done++
	}
	if key != "" {
		k := h.key(key)
		k.busy, k.failed = without(k.busy, seq), without(k.failed, seq)
		if err != nil {
			k.failed = append(k.failed, seq)
		}
	}
	close(h.progress)
	h.progress = make(chan struct{})
}

// Again returns the number of handler calls that succeeded for a message after an earlier call had succeeded.
func (h *History) Again() (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, m := range h.messages {
		n += max(0, m.done-1)
	}
	return n
}

// Handled returns the number of messages that were handled successfully so far, and a channel that is closed when another handler ends.
func (h *History) Handled() (int, <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.handled, h.progress
}

// Began returns how often a handler was called.
func (h *History) Began() (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, m := range h.messages {
		n += m.began
	}
	return n
}

// Verdict returns the violations in the history of the messages 1 to total.
func (h *History) Verdict(total int) []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	wrong := slices.Clone(h.problems)
	lost, foreign := 0, 0
	for seq := range uint64(total) {
		if m := h.messages[seq+1]; m == nil || m.done == 0 {
			lost++
		}
	}
	for seq, m := range h.messages {
		if m.began > 0 && (seq == 0 || seq > uint64(total)) {
			foreign++
		}
	}
	if lost > 0 {
		wrong = append(wrong, fmt.Sprintf("%d of %d messages were not handled", lost, total))
	}
	if foreign > 0 {
		wrong = append(wrong, fmt.Sprintf("%d messages were handled that nobody published", foreign))
	}
	return wrong
}

// String summarizes the history.
func (h *History) String() string {
	handled, _ := h.Handled()
	again, began := h.Again(), h.Began()
	return fmt.Sprintf("%d messages, %d calls of a handler, %d duplicates", handled, began, again)
}

// problem records a violation. h.mu must be held.
func (h *History) problem(format string, args ...any) {
	if len(h.problems) < 20 {
		h.problems = append(h.problems, fmt.Sprintf(format, args...))
	}
}

func (h *History) message(seq uint64) *past {
	m := h.messages[seq]
	if m == nil {
		m = &past{}
		h.messages[seq] = m
	}
	return m
}

func (h *History) key(name string) *keyPast {
	k := h.keys[name]
	if k == nil {
		k = &keyPast{}
		h.keys[name] = k
	}
	return k
}

func without(seqs []uint64, seq uint64) []uint64 {
	return slices.DeleteFunc(seqs, func(s uint64) bool { return s == seq })
}
