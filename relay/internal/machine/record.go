// Package machine is the status machine of one message: a record, an event, the next record. It has no clock, lock,
// goroutine or I/O. Whoever applies an event writes the result with a compare-and-swap of the record it was given, so
// of two that apply events to the same record one wins and the other decides again from what is stored.
package machine

import (
	"encoding/json"
	"time"
)

// Status is where a message is.
type Status string

// The statuses. Sending has a number, [Record.Attempt].
const (
	Arrived   Status = "ARRIVED"
	Sending   Status = "SENDING"
	Delivered Status = "DELIVERED_TO_RECEIVER"
	Responded Status = "RESPONSE_RECEIVED_FROM_RECEIVER"
	Done      Status = "DONE"
	Failed    Status = "FAILED"
)

// Ended tells whether the status is an end.
func (s Status) Ended() bool { return s == Done || s == Failed }

// Stage is the part of the way on which a message failed.
type Stage string

// The stages.
const (
	FromSender   Stage = "from_sender"
	ToReceiver   Stage = "to_receiver"
	FromReceiver Stage = "from_receiver"
	ToSender     Stage = "to_sender"
)

// Stages are all stages.
var Stages = []Stage{FromSender, ToReceiver, FromReceiver, ToSender}

// Reason is why a message failed.
type Reason string

// The reasons.
const (
	Permanent       Reason = "PERMANENT"        // the receiver refused it: 3xx, or 4xx other than 408, 410, 425, 429
	Exhausted       Reason = "EXHAUSTED"        // all attempts are used up
	UnknownOutcome  Reason = "UNKNOWN_OUTCOME"  // a POST has no answer, and may not be repeated
	Expired         Reason = "EXPIRED"          // its time to live is over
	UnknownReceiver Reason = "UNKNOWN_RECEIVER" // nobody configured the receiver
	ReceiverDeleted Reason = "RECEIVER_DELETED" // the receiver was deleted while it waited
	NoResponse      Reason = "NO_RESPONSE"      // the receiver answered 202 and no result before the deadline
	NotTold         Reason = "NOT_TOLD"         // the sender's callback did not answer with 2xx before the deadline
	Malformed       Reason = "MALFORMED"        // it cannot be read
)

// Reasons are all reasons.
var Reasons = []Reason{Permanent, Exhausted, UnknownOutcome, Expired, UnknownReceiver, ReceiverDeleted, NoResponse, NotTold, Malformed}

// Infrastructure tells whether a later try may do better without anybody changing anything.
func (r Reason) Infrastructure() bool { return r == Exhausted || r == NotTold }

const (
	// maxAttempts bounds the history that a record keeps, the latest.
	maxAttempts = 50
	// maxError bounds the text of one error in it, in bytes.
	maxError = 256
)

// Attempt is one POST to the receiver.
type Attempt struct {
	Number   int           `json:"number"`
	Time     time.Time     `json:"time"`
	Code     int           `json:"code,omitempty"`
	Error    string        `json:"error,omitempty"`
	Duration time.Duration `json:"duration"`
}

// Failure says how a message failed.
type Failure struct {
	Stage  Stage     `json:"stage"`
	Reason Reason    `json:"reason"`
	Error  string    `json:"error,omitempty"`
	Time   time.Time `json:"time"`
}

// Record is all that is stored of a message, but for its payload, which travels in the queues.
type Record struct {
	Source   string `json:"source"`
	ID       string `json:"id"`
	Receiver string `json:"receiver"`
	Sender   string `json:"sender,omitempty"` // the sender whose callback is called; empty: none was known
	Hash     string `json:"hash"`             // of receiver and payload: tells a duplicate from a conflict
	Ingest   string `json:"ingest,omitempty"` // names the request that stored it

	Status     Status    `json:"status"`
	Generation int       `json:"generation,omitempty"` // how often it was redriven
	Attempt    int       `json:"attempt,omitempty"`    // POSTs in this generation
	Unknown    bool      `json:"unknown,omitempty"`    // the POST of this attempt ended without an answer
	ArrivedAt  time.Time `json:"arrived"`
	ExpiresAt  time.Time `json:"expires,omitzero"` // zero: never
	SentAt     time.Time `json:"sent,omitzero"`
	NextAt     time.Time `json:"next,omitzero"`
	EndedAt    time.Time `json:"ended,omitzero"`

	Attempts  []Attempt       `json:"attempts,omitempty"`
	Response  json.RawMessage `json:"response,omitempty"`
	Truncated bool            `json:"truncated,omitempty"` // the response was over the limit and is cut
	Failure   *Failure        `json:"failure,omitempty"`
	Told      bool            `json:"told,omitempty"` // the sender knows of the failure
}

// Expires tells whether the time to live is over.
func (r *Record) Expires(now time.Time) bool {
	return !r.ExpiresAt.IsZero() && !now.Before(r.ExpiresAt)
}

func (r *Record) note(a Attempt) {
	if len(a.Error) > maxError {
		a.Error = a.Error[:maxError]
	}
	a.Number = r.Attempt
	kept := r.Attempts[max(0, len(r.Attempts)-maxAttempts+1):]
	// A copy: the record that this one came from keeps its own.
	r.Attempts = append(append(make([]Attempt, 0, len(kept)+1), kept...), a)
}
