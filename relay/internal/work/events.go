package work

import (
	"sync"
	"time"

	"github.com/jetpull/jetpull/relay/internal/machine"
)

// The events that are sent to the operator's URL.
const (
	eventDisabled = "receiver disabled"
	eventOpened   = "circuit breaker opened"
	eventClosed   = "circuit breaker closed"
	eventFailed   = "messages failed"
)

// failedEvery is how often failed messages are reported.
const failedEvery = 10 * time.Second

// event is the body of the request to the operator's URL.
type event struct {
	Event    string
	Receiver string
	Reason   string `json:",omitempty"`
	Count    int    `json:",omitempty"` // of messages that failed
	At       time.Time
}

// failures counts the messages that failed since the last event about them, for each receiver and reason.
type failures struct {
	mu    sync.Mutex
	count map[failure]int
}

type failure struct {
	receiver string
	reason   machine.Reason
}

// notify reports an event to the operator. It does not wait.
func (w *core) notify(e event) {
	e.At = wall()
	w.log.Warn("event", "event", e.Event, "receiver", e.Receiver, "reason", e.Reason, "count", e.Count)
	w.cfg.Events.Send(e)
}

// countFailed counts a failed message for the next event.
func (w *core) countFailed(receiver string, reason machine.Reason) {
	w.failures.mu.Lock()
	defer w.failures.mu.Unlock()
	if w.failures.count == nil {
		w.failures.count = map[failure]int{}
	}
	w.failures.count[failure{receiver, reason}]++
}

// notifyFailed reports the failed messages that were counted, in one event for each receiver and reason.
func (w *core) notifyFailed() {
	w.failures.mu.Lock()
	count := w.failures.count
	w.failures.count = nil
	w.failures.mu.Unlock()
	for f, n := range count {
		w.notify(event{Event: eventFailed, Receiver: f.receiver, Reason: string(f.reason), Count: n})
	}
}
