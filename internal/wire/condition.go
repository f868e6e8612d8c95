package wire

import "strings"

// Condition is what a status frame says, by its code and description. The rules are
// those of nats-server 2.15 (consumer.go).
type Condition uint8

// The conditions.
const (
	NoCondition      Condition = iota
	Heartbeat                  // 100
	NoMessages                 // 404
	RequestsPending            // 408: other pulls wait for what is pending
	Expired                    // 408: the pull ran into its own expiry
	InterestExpired            // 408: a cross-account reply lost interest
	BatchCompleted             // 409: filled, with bytes of max_bytes left
	MaxBytes                   // 409: the next message does not fit max_bytes
	LimitExceeded              // 409: over a limit of the consumer
	MaxWaiting                 // 409: too many waiting pulls
	ConsumerDeleted            // 409: the consumer or its stream
	PushConsumer               // 409: the consumer delivers by push
	LeadershipChange           // 409
	ServerShutdown             // 409
	BadRequest                 // 400 and 412
	PinMismatch                // 423
	NoResponders               // 503
	OtherStatus                // one of a newer server
)

// Class says what a condition means for the pull that it answers.
type Class uint8

// The classes.
const (
	NoClass  Class = iota
	Alive          // the pull lives on
	Empty          // nothing to deliver now: send a long pull
	Over           // the pull ran to its end
	Retry          // the server cannot serve it now: back off, pull again
	Pin            // the pin id is stale: pull again without it
	Config         // the terms of the pull are refused: never retry
	Terminal       // the consumer is gone or cannot be pulled from
)

var classes = [...]Class{
	Heartbeat: Alive, NoMessages: Empty, RequestsPending: Empty,
	Expired: Over, InterestExpired: Over, BatchCompleted: Over, MaxBytes: Over,
	LimitExceeded: Config, BadRequest: Config, ConsumerDeleted: Terminal, PushConsumer: Terminal,
	MaxWaiting: Retry, LeadershipChange: Retry, ServerShutdown: Retry, NoResponders: Retry, OtherStatus: Retry,
	PinMismatch: Pin,
}

// Class returns what c means for a pull.
func (c Condition) Class() Class { return classes[c] }

// described are the conditions of a code that has several, by the prefix of their
// descriptions in lower case: some carry values behind it. The first that fits counts.
var described = map[int][]struct {
	prefix string
	is     Condition
}{
	408: {{"requests pending", RequestsPending}, {"interest expired", InterestExpired}, {"", Expired}},
	409: {
		{"batch completed", BatchCompleted},
		{"message size exceeds maxbytes", MaxBytes},
		{"exceeded maxrequest", LimitExceeded},
		{"exceeded maxwaiting", MaxWaiting},
		{"consumer deleted", ConsumerDeleted},
		{"consumer is push based", PushConsumer},
		{"leadership change", LeadershipChange},
		{"server shutdown", ServerShutdown},
	},
}

func conditionOf(code int, description string) Condition {
	switch code {
	case 100:
		return Heartbeat
	case 400, 412:
		return BadRequest
	case 404:
		return NoMessages
	case 423:
		return PinMismatch
	case 503:
		return NoResponders
	}
	d := strings.ToLower(description)
	for _, c := range described[code] {
		if strings.HasPrefix(d, c.prefix) {
			return c.is
		}
	}
	return OtherStatus
}
