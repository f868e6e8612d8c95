package work

import (
	"time"

	"github.com/jetpull/jetpull/broker/internal/domain"
)

// The events that operators are notified of.
const (
	EventPaused     = "consumer paused"
	EventResumed    = "consumer resumed"
	EventOpened     = "circuit breaker opened"
	EventHalfOpened = "circuit breaker half-open"
	EventClosed     = "circuit breaker closed"
)

// operatorEvent is the body of a request to the operator's URL.
type operatorEvent struct {
	Event    string
	Channel  string
	Consumer string
	Reason   string `json:",omitempty"`
	At       time.Time
}

// notifier notifies operators of changes.
type notifier struct{ *core }

// notify reports a change to operators: in the log, in the metrics, and at the configured URL. It does not block.
func (n *notifier) notify(event string, c domain.Consumer, reason string) {
	n.Log.Warn("a consumer has changed", "event", event, "channel", c.Channel, "consumer", c.ID, "reason", reason)
	n.Metrics.events.WithLabelValues(event).Inc()
	n.Events.Send(operatorEvent{Event: event, Channel: c.Channel, Consumer: c.ID, Reason: reason, At: time.Now().UTC()})
}
