package natstest

import (
	"fmt"
	"slices"
	"sync"
)

// History is what became of the messages of a stream while workers handled them
// and faults were made. It states in the end that
//
//   - every message was handled with success,
//   - a message whose handler had succeeded, or was still running, was handled
//     again only by another Consume, and only after a fault at which it was in
//     flight,
//   - each key was handled one message at a time and in order, and nothing of it
//     after a message that had failed, until that was settled.
//
// A message that a fault took before any handler had it is redelivered when later ones
// have been handled, so the order is otherwise that of first deliveries.
type History struct {
	mu       sync.Mutex
	runs     int
	faults   int
	members  int // of all faults
	calls    int // of a handler
	handled  int // messages that were handled with success
	messages map[uint64]*past
	keys     map[string]*keyPast
	problems []string
	progress chan struct{} // closed with the next end of a handler
}

// past is what became of one message.
type past struct {
	began, done int // handlings, and those that succeeded
	run         int // of the last handling
	running     bool
	failed      bool
	since       int // faults when the last handling began
	call        int // of all handlings, which the last one was
	lastFault   int // at which the message was in flight, counted from 1
}

// keyPast is what became of the messages of one key.
type keyPast struct {
	last   uint64 // by first deliveries
	busy   []uint64
	failed []uint64 // and not settled yet
}

// NewHistory begins a history.
func NewHistory() *History {
	return &History{messages: map[uint64]*past{}, keys: map[string]*keyPast{}, progress: make(chan struct{})}
}

// Run numbers one Consume.
func (h *History) Run() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.runs++
	return h.runs
}

// Begin notes that a Consume has given a message to a handler, and how often the
// server has delivered it. An empty key has no order.
func (h *History) Begin(run int, key string, seq, delivered uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	m := h.message(seq)
	h.judge(m, run, seq, delivered)
	h.calls++
	m.began++
	m.run, m.running, m.failed, m.since, m.call = run, true, false, h.faults, h.calls
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
func (h *History) judge(m *past, run int, seq, delivered uint64) {
	state := "had succeeded"
	switch {
	case m.began == 0 || m.failed:
		return
	case m.running:
		state = "was running"
	}
	who, fault := "the same Consume", ""
	if m.run != run {
		if m.lastFault > m.since {
			return
		}
		who, fault = "another Consume", ", and it was in flight at none"
	}
	h.problem("message %d was handled again by %s, though its handler %s%s (delivery %d, %d calls and %d faults between)",
		seq, who, state, fault, delivered, h.calls-m.call, h.faults-m.since)
}

// End notes that a handler is done with a message, and whether it failed.
func (h *History) End(run int, key string, seq uint64, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	m := h.message(seq)
	if m.run == run { // or else another has it already
		m.running, m.failed = false, err != nil
	}
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

// Fault notes a fault and the messages that were in flight at it: delivered by the
// server, and not certain to be settled there. It returns how many of them a handler
// had been given.
func (h *History) Fault(inFlight []uint64) (begun int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.faults++
	h.members += len(inFlight)
	for _, seq := range inFlight {
		m := h.message(seq)
		m.lastFault = h.faults
		begun += min(1, m.began)
	}
	return begun
}

// Highest is the highest sequence that any handler had.
func (h *History) Highest() (seq uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for s, m := range h.messages {
		if m.began > 0 {
			seq = max(seq, s)
		}
	}
	return seq
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
	h.mu.Lock()
	defer h.mu.Unlock()
	return fmt.Sprintf("%d messages, %d calls of a handler, %d duplicates; %d in flight at %d faults", handled, began, again, h.members, h.faults)
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
