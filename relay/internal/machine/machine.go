package machine

import (
	"encoding/json"
	"net/http"
	"time"
)

// Kind is the kind of an event.
type Kind int

// The events.
const (
	Send       Kind = iota // an attempt is about to be made
	Answered               // the POST of an attempt was answered, or was certainly not sent
	Lost                   // the POST of an attempt ended without an answer, or its process died
	Asked                  // the status endpoint returned a result, or 202
	NeverSeen              // the status endpoint has not seen the message
	GiveUp                 // a worker cannot continue
	CalledBack             // the sender answered its callback with 2xx
	Redrive                // the message must be tried again
)

// Outcome classifies an answer.
type Outcome int

// The outcomes.
const (
	Result  Outcome = iota // a response, which may be empty
	Pending                // accepted; the response comes later
	Retry                  // try again later
	Refused                // refused for good
)

// Policy is the part of the configuration of receiver and sender on which transitions depend.
type Policy struct {
	MaxAttempts    int           // POSTs in all, at least 1
	RetryAfter     time.Duration // the pause between two of them
	StatusEndpoint bool          // the receiver can be asked for the outcome of a POST
	AtMostOnce     bool          // a POST without an answer is not repeated; without a StatusEndpoint only
	Callback       bool          // the sender has a callback endpoint
}

// Event is an event. Next reads only the fields that belong to its kind.
type Event struct {
	Kind    Kind
	Now     time.Time
	Policy  Policy
	Attempt int // Answered, Lost, NeverSeen: the number of the attempt

	Outcome    Outcome         // Answered, Asked
	Response   json.RawMessage // Answered, Asked with Result
	Truncated  bool            // the same
	RetryAfter time.Duration   // Answered with Retry: the Retry-After of the receiver; 0: none
	Note       Attempt         // Answered, Lost: for the history

	Stage  Stage  // GiveUp
	Reason Reason // GiveUp
	Error  string // GiveUp
}

// Classify returns the meaning of a status code. A 202 is Pending if there is a status endpoint, and an empty response otherwise.
func Classify(code int, statusEndpoint bool) Outcome {
	switch {
	case code == http.StatusAccepted && statusEndpoint:
		return Pending
	case code >= 200 && code <= 299:
		return Result
	case code == http.StatusRequestTimeout, code == http.StatusGone, code == http.StatusTooEarly, code == http.StatusTooManyRequests, code >= 500:
		return Retry
	}
	return Refused
}

// Next applies an event. It returns false if the event is not valid in the record's status, because another worker was faster or the event is late.
// The caller then writes nothing.
//
//	          create
//	            |
//	            v   Send (CAS, then the POST)      202 and a status endpoint
//	+------> ARRIVED ---------------> SENDING(n) -------------------> DELIVERED_TO_RECEIVER
//	|           ^    <----------------  |  |  ^                            | poll: result
//	|  Redrive  |  retry, never seen    |  +--+ no answer, can be asked    v
//	|           |                       +---- result ---> RESPONSE_RECEIVED_FROM_RECEIVER
//	|           |                              |                           | callback 2xx
//	|           |                              | no callback               v
//	+-------- FAILED <-- refused, exhausted,   +------------------------> DONE
//	                     expired, given up
func Next(r Record, e Event) (Record, bool) {
	switch e.Kind {
	case Send:
		return send(r, e)
	case Answered, Lost, NeverSeen:
		if r.Status != Sending || r.Attempt != e.Attempt {
			return r, false
		}
		return ended(r, e)
	case Asked:
		return asked(r, e)
	case GiveUp:
		if r.Status.Ended() || (r.Status == Responded) != (e.Stage == ToSender) {
			return r, false
		}
		return fail(r, e, e.Stage, e.Reason, e.Error), true
	case CalledBack:
		return calledBack(r, e)
	case Redrive:
		return redrive(r, e)
	}
	return r, false
}

// Restore returns the record of a message whose stored record is lost, from the copy r in its queue entry. If r is ARRIVED, the receiver may have got
// the message already. A worker then asks the status endpoint. If there is none, and the receiver must not get a second POST, the message fails.
func Restore(r Record, e Event) Record {
	switch {
	case r.Status != Arrived:
	case e.Policy.StatusEndpoint:
		r.Status, r.Unknown, r.SentAt = Sending, true, e.Now
	case e.Policy.AtMostOnce:
		return fail(r, e, ToReceiver, UnknownOutcome, "the store has lost its record")
	}
	return r
}

func send(r Record, e Event) (Record, bool) {
	if r.Status != Arrived {
		return r, false
	}
	if r.Attempt >= e.Policy.MaxAttempts {
		// The configuration now allows fewer attempts than were made.
		return fail(r, e, ToReceiver, Exhausted, "no attempt is left"), true
	}
	r.Status, r.Attempt, r.Unknown = Sending, r.Attempt+1, false
	r.SentAt, r.NextAt = e.Now, time.Time{}
	return r, true
}

// ended applies the end of an attempt.
func ended(r Record, e Event) (Record, bool) {
	switch e.Kind {
	case Answered:
		r.note(e.Note)
		switch e.Outcome {
		case Result:
			return respond(r, e), true
		case Pending:
			r.Status = Delivered
			return r, true
		case Refused:
			return fail(r, e, ToReceiver, Permanent, e.Note.Error), true
		case Retry:
		}
		return again(r, e), true
	case Lost:
		if r.Unknown {
			return r, false
		}
		r.note(e.Note)
		if e.Policy.StatusEndpoint {
			r.Unknown = true
			return r, true
		}
		if e.Policy.AtMostOnce {
			return fail(r, e, ToReceiver, UnknownOutcome, e.Note.Error), true
		}
		return again(r, e), true
	default: // NeverSeen
		if r.Unknown {
			// The POST was made, so it counts. Otherwise a receiver that loses every POST would get POSTs for ever.
			return again(r, e), true
		}
		// The process died at or before the POST, and the receiver has not seen it.
		r.Status, r.Attempt, r.NextAt = Arrived, r.Attempt-1, time.Time{}
		return r, true
	}
}

func again(r Record, e Event) Record {
	if r.Attempt >= e.Policy.MaxAttempts {
		text := ""
		if n := len(r.Attempts); n > 0 {
			text = r.Attempts[n-1].Error
		}
		return fail(r, e, ToReceiver, Exhausted, text)
	}
	r.Status, r.Unknown = Arrived, false
	r.NextAt = e.Now.Add(max(e.Policy.RetryAfter, e.RetryAfter))
	if !r.ExpiresAt.IsZero() && r.ExpiresAt.Before(r.NextAt) {
		r.NextAt = r.ExpiresAt // the message expires then
	}
	return r
}

func asked(r Record, e Event) (Record, bool) {
	switch {
	case r.Status != Sending && r.Status != Delivered:
		return r, false
	case e.Outcome == Result:
		return respond(r, e), true
	case e.Outcome == Pending && r.Status == Sending:
		r.Status, r.Unknown = Delivered, false
		return r, true
	}
	return r, false
}

func respond(r Record, e Event) Record {
	r.Response, r.Truncated, r.Unknown = e.Response, e.Truncated, false
	r.Status, r.NextAt = Responded, time.Time{}
	if !e.Policy.Callback {
		r.Status, r.EndedAt = Done, e.Now
	}
	return r
}

func fail(r Record, e Event, stage Stage, reason Reason, text string) Record {
	r.Failure = &Failure{Stage: stage, Reason: reason, Error: text[:min(len(text), maxError)], Time: e.Now}
	r.Status, r.EndedAt, r.NextAt, r.Unknown = Failed, e.Now, time.Time{}, false
	r.Reported = !e.Policy.Callback
	return r
}

func calledBack(r Record, e Event) (Record, bool) {
	switch {
	case r.Status == Responded:
		r.Status, r.EndedAt = Done, e.Now
	case r.Status == Failed && !r.Reported:
		r.Reported = true
	default:
		return r, false
	}
	return r, true
}

func redrive(r Record, e Event) (Record, bool) {
	if r.Status != Failed {
		return r, false
	}
	stage, reason := r.Failure.Stage, r.Failure.Reason
	r.Generation, r.Failure, r.Reported = r.Generation+1, nil, false
	r.EndedAt, r.NextAt, r.ExpiresAt = time.Time{}, time.Time{}, time.Time{}
	if stage == ToSender {
		// The receiver has done its part. Only the callback is repeated.
		r.Status = Responded
		if !e.Policy.Callback {
			r.Status, r.EndedAt = Done, e.Now
		}
		return r, true
	}
	r.Status, r.Attempt = Arrived, 0
	if e.Policy.StatusEndpoint && (stage == FromReceiver || reason == UnknownOutcome) {
		// The receiver has the message, or may have it, so a worker asks it before it sends anything.
		r.Status, r.Unknown, r.SentAt = Sending, true, e.Now
	}
	return r, true
}
