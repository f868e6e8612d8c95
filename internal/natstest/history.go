package natstest

import (
	"fmt"
	"slices"
	"sync"
)

// History records the messages of a stream while a Consume handles them and faults
// are injected. At the end it checks that
//
//   - every message was handled with success,
//   - none was handled again whose handler had succeeded, or was still running,
//   - each key was handled one message at a time and in order, and nothing of it
//     after a message that had failed, until that was settled.
//
// A message that a fault took before any handler had it is redelivered when later ones
// have been handled, so the order is otherwise that of first deliveries.
type History struct {
	mu       sync.Mutex
	calls    int // of a handler
	handled  int // messages that were handled with success
	messages map[uint64]*past
	keys     map[string]*keyPast
	problems []string
	progress chan struct{} // closed with the next end of a handler
}

// past is the record of one message.
type past struct {
	began, done int // handlings, and those that succeeded
	running     bool
	failed      bool
	call        int // of all handlings, which the last one was
}

// keyPast is the record of the messages of one key.
type keyPast struct {
	last   uint64 // by first deliveries
	busy   []uint64
	failed []uint64 // and not settled yet
}

// NewHistory begins a history.
func NewHistory() *History {
	return &History{messages: map[uint64]*past{}, keys: map[string]*keyPast{}, progress: make(chan struct{})}
}

// Begin notes that a handler was given a message, and how often the server has
// delivered it. An empty key has no order.
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

// judge holds a handling against the one before.
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

// End notes that a handler is done with a message, and whether it failed.
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

// Again is how many messages were handled with success more than once.
func (h *History) Again() (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, m := range h.messages {
		n += max(0, m.done-1)
	}
	return n
}

// Handled is how many messages were handled with success so far, and a channel that
// is closed when another handler ends.
func (h *History) Handled() (int, <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.handled, h.progress
}

// Began is how many times a handler was called.
func (h *History) Began() (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, m := range h.messages {
		n += m.began
	}
	return n
}

// Verdict is what is wrong with the history of the messages 1 to total.
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

// String is the history in figures.
func (h *History) String() string {
	handled, _ := h.Handled()
	again, began := h.Again(), h.Began()
	return fmt.Sprintf("%d messages, %d calls of a handler, %d duplicates", handled, began, again)
}

// problem notes what must not be. The lock is held.
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
