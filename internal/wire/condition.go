package wire

import "strings"

// Condition is the meaning of a status frame, by its code and description. The rules are
// those of nats-server 2.15 (consumer.go).
type Condition uint8

// The conditions.
const (
	NoCondition      Condition = iota
	Heartbeat                  // 100
	NoMessages                 // 404
	RequestsPending            // 408: other pulls wait for the pending messages
	Expired                    // 408: the pull has expired
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

// Class is the effect of a condition on the pull that it answers.
type Class uint8

// The classes.
const (
	NoClass  Class = iota
	Alive          // the pull stays open
	Empty          // nothing to deliver now: send a long pull
	Over           // the pull has ended normally
	Retry          // the server cannot serve the pull now: back off, pull again
	Pin            // the pin id is stale: pull again without it
	Config         // the terms of the pull are refused: a call ends
	Terminal       // the consumer is gone or cannot be pulled from
)

var classes = [...]Class{
	Heartbeat: Alive, NoMessages: Empty, RequestsPending: Empty,
	Expired: Over, InterestExpired: Over, BatchCompleted: Over, MaxBytes: Over,
	LimitExceeded: Config, BadRequest: Config, ConsumerDeleted: Terminal, PushConsumer: Terminal,
	MaxWaiting: Retry, LeadershipChange: Retry, ServerShutdown: Retry, NoResponders: Retry, OtherStatus: Retry,
	PinMismatch: Pin,
}

// Class returns the class of c.
func (c Condition) Class() Class { return classes[c] }

// conditions maps a code and the beginning of a description, without case, to a condition. Some descriptions end with
// values. The first match counts.
var conditions = [...]struct {
	code   int
	prefix string
	is     Condition
}{
	{100, "", Heartbeat},
	{400, "", BadRequest},
	{404, "", NoMessages},
	{408, "requests pending", RequestsPending},
	{408, "interest expired", InterestExpired},
	{408, "", Expired},
	{409, "batch completed", BatchCompleted},
	{409, "message size exceeds maxbytes", MaxBytes},
	{409, "exceeded maxrequest", LimitExceeded},
	{409, "exceeded maxwaiting", MaxWaiting},
	{409, "consumer deleted", ConsumerDeleted},
	{409, "consumer is push based", PushConsumer},
	{409, "leadership change", LeadershipChange},
	{409, "server shutdown", ServerShutdown},
	{412, "", BadRequest},
	{423, "", PinMismatch},
	{503, "", NoResponders},
}

// ConditionOf returns the meaning of a status by its code and description.
func ConditionOf(code int, description string) Condition {
	for _, c := range conditions {
		if n := len(c.prefix); c.code == code && len(description) >= n && strings.EqualFold(description[:n], c.prefix) {
			return c.is
		}
	}
	return OtherStatus
}
