package work

import (
	"time"

	"github.com/jetpull/jetpull/broker/internal/domain"
)

// The events that operators are notified of.
const (
	EventPaused  = "consumer paused"
	EventResumed = "consumer resumed"
	EventOpened  = "circuit breaker opened"
	EventClosed  = "circuit breaker closed"
)

// operatorEvent is the body of a request to the operator's URL.
type operatorEvent struct {
	Event    string
	Channel  string
	Consumer string
	Reason   string `json:",omitempty"`
	At       time.Time
}

// notify reports a change to operators: in the log, in the metrics, and at the configured URL. It does not block.
func (c *core) notify(event string, k domain.Consumer, reason string) {
	c.Log.Warn("a consumer has changed", "event", event, "channel", k.Channel, "consumer", k.ID, "reason", reason)
	c.Metrics.events.WithLabelValues(event).Inc()
	c.Events.Send(operatorEvent{Event: event, Channel: k.Channel, Consumer: k.ID, Reason: reason, At: c.Now()})
}
