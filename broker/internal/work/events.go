package work

import (
	"context"
	"encoding/json"
	"time"

	"github.com/jetpull/jetpull/broker/internal/domain"
)

// What operators are told of.
const (
	EventPaused     = "consumer paused"
	EventResumed    = "consumer resumed"
	EventOpened     = "circuit breaker opened"
	EventHalfOpened = "circuit breaker half-open"
	EventClosed     = "circuit breaker closed"
)

// operatorEvent is the body of the request to the operator's URL.
type operatorEvent struct {
	Event    string
	Channel  string
	Consumer string
	Reason   string `json:",omitempty"`
	At       time.Time
}

const (
	// heldEvents is how many events wait for the operator's URL.
	heldEvents = 256
	// eventTries and eventPause bound the attempts to hand one over.
	eventTries = 4
	eventPause = time.Second
)

// tell tells operators of a change: in the log, in the metrics, and at the URL that is
// configured. It does not wait.
func (b *Broker) tell(event string, c domain.Consumer, reason string) {
	b.log.Warn("a consumer has changed", "event", event, "channel", c.Channel, "consumer", c.ID, "reason", reason)
	b.metrics.events.WithLabelValues(event).Inc()
	if b.rules.EventURL == "" || b.eventPoster == nil {
		return
	}
	select {
	case b.told <- operatorEvent{Event: event, Channel: c.Channel, Consumer: c.ID, Reason: reason, At: time.Now().UTC()}:
	default:
		b.log.Warn("an event is not sent: too many wait", "event", event, "waiting", heldEvents)
	}
}

// sendEvents hands events over, one after the other, until ctx ends.
func (b *Broker) sendEvents(ctx context.Context) {
	for {
		select {
		case e := <-b.told:
			b.sendEvent(ctx, e)
		case <-ctx.Done():
			return
		}
	}
}

func (b *Broker) sendEvent(ctx context.Context, e operatorEvent) {
	body, err := json.Marshal(e)
	if err != nil {
		b.log.Error("an event cannot be sent", "event", e.Event, "error", err)
		return
	}
	for try := range eventTries {
		if try > 0 {
			select {
			case <-time.After(eventPause << (2 * (try - 1))):
			case <-ctx.Done():
				return
			}
		}
		_, err = b.eventPoster.Post(ctx, Callback{
			URL: b.rules.EventURL, Payload: body,
			Header: map[string][]string{"Content-Type": {"application/json"}, "User-Agent": {b.rules.UserAgent}},
		})
		if err == nil {
			return
		}
	}
	b.log.Warn("an event could not be sent to the operator's URL", "event", e.Event, "channel", e.Channel, "consumer", e.Consumer, "error", err)
}
