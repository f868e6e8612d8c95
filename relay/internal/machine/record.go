// Package machine is the status machine of one message: it computes the next record from a record and an event. It has no clock, lock, goroutine or
// I/O. The caller writes the result with a compare-and-swap of the record that it passed. If two callers apply events to the same record, one wins,
// and the other decides again from the stored record.
package machine

import (
	"encoding/json"
	"time"
)

// Status is the status of a message.
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

// Ended reports whether the status is final.
func (s Status) Ended() bool { return s == Done || s == Failed }

// Stage is the worker at which a message failed.
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

// Reason is the reason why a message failed.
type Reason string

// The reasons.
const (
	Permanent       Reason = "PERMANENT"        // the receiver refused it: 3xx, or 4xx other than 408, 410, 425, 429
	Exhausted       Reason = "EXHAUSTED"        // all attempts are used up
	UnknownOutcome  Reason = "UNKNOWN_OUTCOME"  // a POST has no answer, and must not be repeated
	Expired         Reason = "EXPIRED"          // its time to live is over
	UnknownReceiver Reason = "UNKNOWN_RECEIVER" // no receiver has this name
	ReceiverDeleted Reason = "RECEIVER_DELETED" // the receiver was deleted while the message waited
	NoResponse      Reason = "NO_RESPONSE"      // the receiver answered 202, and had no result before the deadline
	CallbackFailed  Reason = "NOT_TOLD"         // the sender's callback did not answer with 2xx before the deadline
	Malformed       Reason = "MALFORMED"        // the message cannot be decoded
)

// Reasons are all reasons.
var Reasons = []Reason{Permanent, Exhausted, UnknownOutcome, Expired, UnknownReceiver, ReceiverDeleted, NoResponse, CallbackFailed, Malformed}

// Infrastructure reports whether a later attempt may succeed without a change of the message or the configuration.
func (r Reason) Infrastructure() bool { return r == Exhausted || r == CallbackFailed }

const (
	// maxAttempts is how many of the latest attempts a record keeps.
	maxAttempts = 50
	// maxError bounds the text of one error in the history, in bytes.
	maxError = 256
	// keptAnswers is how many of the latest attempts keep their answer.
	keptAnswers = 3
)

// Attempt is one POST to the receiver.
type Attempt struct {
	Number   int           `json:"number"`
	Time     time.Time     `json:"time"`
	Code     int           `json:"code,omitempty"`
	Error    string        `json:"error,omitempty"`
	Duration time.Duration `json:"duration"`
	// Answer is shown to operators. Only the latest attempts have one, if there was an answer.
	Answer *Answer `json:"answer,omitempty"`
}

// Answer is the beginning of a receiver's answer.
type Answer struct {
	Headers map[string]string `json:"headers,omitempty"`
	// Body is empty if the record has it as the response.
	Body string `json:"body,omitempty"`
}

// Failure describes why, where and when a message failed.
type Failure struct {
	Stage  Stage     `json:"stage"`
	Reason Reason    `json:"reason"`
	Error  string    `json:"error,omitempty"`
	Time   time.Time `json:"time"`
}

// Record is the stored state of a message. The payload is in the entries of the queues instead.
type Record struct {
	Source   string `json:"source"`
	ID       string `json:"id"`
	Receiver string `json:"receiver"`
	Sender   string `json:"sender,omitempty"` // the sender that owns the source; empty: none did
	Hash     string `json:"hash"`             // of receiver and payload; distinguishes a duplicate from a conflict

	Status     Status    `json:"status"`
	Generation int       `json:"generation,omitempty"` // number of redrives
	Attempt    int       `json:"attempt,omitempty"`    // POSTs in this generation
	Unknown    bool      `json:"unknown,omitempty"`    // the POST of this attempt ended without an answer
	ArrivedAt  time.Time `json:"arrived"`
	ExpiresAt  time.Time `json:"expires,omitzero"` // zero: never
	SentAt     time.Time `json:"sent,omitzero"`
	NextAt     time.Time `json:"next,omitzero"`
	EndedAt    time.Time `json:"ended,omitzero"`

	Attempts  []Attempt       `json:"attempts,omitempty"`
	Response  json.RawMessage `json:"response,omitempty"`
	Truncated bool            `json:"truncated,omitempty"` // the response exceeded the limit and was cut
	Failure   *Failure        `json:"failure,omitempty"`
	Reported  bool            `json:"told,omitempty"` // the failure was reported to the sender, or there is no callback
}

// Expires reports whether the time to live is over.
func (r *Record) Expires(now time.Time) bool {
	return !r.ExpiresAt.IsZero() && !now.Before(r.ExpiresAt)
}

func (r *Record) note(a Attempt) {
	a.Number, a.Error = r.Attempt, a.Error[:min(len(a.Error), maxError)]
	kept := r.Attempts[max(0, len(r.Attempts)-maxAttempts+1):]
	// The array is copied, because the previous record shares it.
	r.Attempts = append(append(make([]Attempt, 0, len(kept)+1), kept...), a)
	for i := range max(0, len(r.Attempts)-keptAnswers) {
		r.Attempts[i].Answer = nil
	}
}
