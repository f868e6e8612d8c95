package work

import (
	"context"
	"encoding/json"
	"net/http"
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

// notifier tells operators of changes.
type notifier struct {
	*core
	told chan operatorEvent
}

// tell tells operators of a change: in the log, in the metrics, and at the URL that is
// configured. It does not wait.
func (n *notifier) tell(event string, c domain.Consumer, reason string) {
	n.Log.Warn("a consumer has changed", "event", event, "channel", c.Channel, "consumer", c.ID, "reason", reason)
	n.Metrics.events.WithLabelValues(event).Inc()
	if n.Rules.EventURL == "" || n.EventPoster == nil {
		return
	}
	select {
	case n.told <- operatorEvent{Event: event, Channel: c.Channel, Consumer: c.ID, Reason: reason, At: time.Now().UTC()}:
	default:
		n.Log.Warn("an event is not sent: too many wait", "event", event, "waiting", heldEvents)
	}
}

// sendEvents hands events over, one after the other, until ctx ends.
func (n *notifier) sendEvents(ctx context.Context) {
	for {
		select {
		case e := <-n.told:
			n.sendEvent(ctx, e)
		case <-ctx.Done():
			return
		}
	}
}

func (n *notifier) sendEvent(ctx context.Context, e operatorEvent) {
	body, err := json.Marshal(e)
	if err != nil {
		n.Log.Error("an event cannot be sent", "event", e.Event, "error", err)
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
		header := http.Header{"Content-Type": {"application/json"}, "User-Agent": {n.Rules.UserAgent}}
		_, err = n.EventPoster.PostKeep(ctx, n.Rules.EventURL, header, body, 0)
		if err == nil {
			return
		}
	}
	n.Log.Warn("an event could not be sent to the operator's URL", "event", e.Event, "channel", e.Channel, "consumer", e.Consumer, "error", err)
}
