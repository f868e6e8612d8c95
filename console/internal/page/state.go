package page

import (
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull/console/internal/view"
)

// state is what is going on with a consumer.
type state struct {
	word     string
	tone     view.Tone
	sentence string
}

// countWait is how many messages have not been delivered yet.
func countWait(n uint64) string {
	switch n {
	case 0:
		return "none waits"
	case 1:
		return "1 message waits"
	}
	return view.Count(n, "message") + " wait"
}

// value is the word of the state, with its sentence.
func (s state) value() view.Value {
	v := view.Word(s.tone, s.word)
	v.Title = s.sentence
	return v
}

// severity orders states, the worst first.
func (s state) severity() int {
	switch s.tone {
	case view.Bad:
		return 0
	case view.Warn:
		return 1
	case view.Good:
		return 2
	}
	return 3
}

// stateOf judges a consumer by its state and its deliveries in a second. The first case that applies is the one that an operator has to know.
func stateOf(c *jetstream.ConsumerInfo, rate float64) state {
	waiting := countWait(c.NumPending)
	limit := c.Config.MaxAckPending
	pull := c.Config.DeliverSubject == ""
	switch {
	case c.Cluster != nil && c.Cluster.Leader == "":
		return state{"no leader", view.Bad, "No server leads this consumer, so it delivers nothing. Too few of its servers are running."}
	case c.Paused:
		until := ""
		if c.Config.PauseUntil != nil {
			until = " until " + c.Config.PauseUntil.UTC().Format("2006-01-02 15:04:05") + " UTC"
		}
		return state{"paused", view.Warn, fmt.Sprintf("Paused%s; %s.", until, waiting)}
	case limit > 0 && c.NumAckPending >= limit && c.NumPending > 0 && rate > 0:
		return state{"at its limit", view.Warn, fmt.Sprintf(
			"%d messages are delivered and not acknowledged, which is the limit, so delivery waits for acknowledgements; %s.", c.NumAckPending, waiting)}
	case limit > 0 && c.NumAckPending >= limit && c.NumPending > 0:
		return state{"blocked", view.Bad, fmt.Sprintf(
			"%d messages are delivered and not acknowledged, which is the limit, so delivery has stopped; %s.", c.NumAckPending, waiting)}
	case !pull && !c.PushBound && c.NumPending > 0:
		return state{"no subscriber", view.Bad, fmt.Sprintf("Nobody subscribes to the delivery subject, and %s.", waiting)}
	case pull && c.NumPending > 0 && c.NumWaiting == 0 && c.NumAckPending == 0:
		return state{"no worker", view.Bad, fmt.Sprintf("No client pulls, and %s.", waiting)}
	case c.NumRedelivered > 0:
		return state{"redelivering", view.Warn, fmt.Sprintf("%s redelivered: a handler fails, or is slower than the acknowledgement wait.",
			countIs(uint64(c.NumRedelivered), "unacknowledged message"))}
	case c.NumPending > 0 || c.NumAckPending > 0 || rate > 0:
		return state{"working", view.Good, fmt.Sprintf("%s delivered and not acknowledged yet, %s.", countIs(uint64(c.NumAckPending), "message"),
			countWait(c.NumPending))}
	case pull && c.NumWaiting == 0:
		return state{"idle, no worker", view.Plain, "Nothing waits, and no client pulls."}
	}
	return state{"idle", view.Plain, "Nothing waits."}
}
