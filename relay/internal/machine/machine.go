package machine

import (
	"encoding/json"
	"net/http"
	"time"
)

// Kind is what happened to a message.
type Kind int

// The events.
const (
	Send      Kind = iota // an attempt is about to be made
	Answered              // the POST of an attempt was answered, or certainly not sent
	Lost                  // the POST of an attempt ended, or its process did, without an answer
	Asked                 // the status endpoint gave a result, or says that it is pending
	NeverSeen             // the status endpoint has not seen the message
	Expire                // its time to live is over
	GiveUp                // a worker cannot go on
	Told                  // the sender answered its callback with 2xx
	Redrive               // somebody wants it tried again
)

// Outcome is what an answer means.
type Outcome int

// The outcomes.
const (
	Result  Outcome = iota // the response, which may be empty
	Pending                // accepted, the response comes later
	Retry                  // not now
	Refused                // never
)

// Policy is what the configuration of receiver and sender says about a message.
type Policy struct {
	MaxAttempts    int           // POSTs in all, at least 1
	RetryAfter     time.Duration // the pause between two
	StatusEndpoint bool          // the receiver can be asked what became of a message
	AtMostOnce     bool          // a POST without an answer is not repeated; without a StatusEndpoint only
	Callback       bool          // the sender wants to be told
}

// Event is one event. Fields that its kind does not name are not read.
type Event struct {
	Kind    Kind
	Now     time.Time
	Policy  Policy
	Attempt int // Answered, Lost, NeverSeen: the attempt that it is about

	Outcome    Outcome         // Answered, Asked
	Response   json.RawMessage // Answered, Asked with Result
	Truncated  bool            // the same
	RetryAfter time.Duration   // Answered with Retry: what the receiver asked for; 0: nothing
	Note       Attempt         // Answered, Lost: for the history

	Stage  Stage  // GiveUp, Expire
	Reason Reason // GiveUp
	Error  string // GiveUp, Expire
}

// Classify says what the status of an answer means. A 202 is pending only where there is a way to ask later;
// without one it is an empty response.
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

// Next applies an event. It returns false where the event does not belong to the record's status: then nothing is
// written, because another worker was faster or the event is late.
//
//	          create
//	            │
//	            ▼   Send (CAS, then the POST)      202 and a status endpoint
//	┌──────► ARRIVED ───────────────► SENDING(n) ───────────────────► DELIVERED_TO_RECEIVER
//	│           ▲    ◄────────────────  │  │  ▲                            │ poll: result
//	│  Redrive  │  retry, never seen    │  └──┘ no answer, can be asked    ▼
//	│           │                       └──── result ───► RESPONSE_RECEIVED_FROM_RECEIVER
//	│           │                              │                           │ callback 2xx
//	│           │                              │ no callback               ▼
//	└──────── FAILED ◄── refused, exhausted,   └────────────────────────► DONE
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
	case Expire:
		if r.Status != Arrived && r.Status != Delivered {
			// A POST in flight decides; a response that is there is delivered late rather than never.
			return r, false
		}
		return fail(r, e, e.Stage, Expired, e.Error), true
	case GiveUp:
		if r.Status.Ended() || (r.Status == Responded) != (e.Stage == ToSender) {
			return r, false
		}
		return fail(r, e, e.Stage, e.Reason, e.Error), true
	case Told:
		return told(r, e)
	case Redrive:
		return redrive(r, e)
	}
	return r, false
}

func send(r Record, e Event) (Record, bool) {
	if r.Status != Arrived {
		return r, false
	}
	if r.Attempt >= e.Policy.MaxAttempts {
		// The configuration was changed to fewer than were made.
		return fail(r, e, ToReceiver, Exhausted, "no attempt is left"), true
	}
	r.Status, r.Attempt, r.Unknown = Sending, r.Attempt+1, false
	r.SentAt, r.NextAt = e.Now, time.Time{}
	return r, true
}

// ended is the end of an attempt.
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
			// The POST was made: it counts, or a receiver that swallows every POST would get them for ever.
			return again(r, e), true
		}
		// The process died at or before the POST, and the receiver has not seen it.
		r.Status, r.Attempt, r.NextAt = Arrived, r.Attempt-1, time.Time{}
		return r, true
	}
}

func again(r Record, e Event) Record {
	if r.Attempt >= e.Policy.MaxAttempts {
		return fail(r, e, ToReceiver, Exhausted, lastError(r))
	}
	r.Status, r.Unknown = Arrived, false
	r.NextAt = e.Now.Add(max(e.Policy.RetryAfter, e.RetryAfter))
	return r
}

func lastError(r Record) string {
	if len(r.Attempts) == 0 {
		return ""
	}
	return r.Attempts[len(r.Attempts)-1].Error
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
	if len(text) > maxError {
		text = text[:maxError]
	}
	r.Failure = &Failure{Stage: stage, Reason: reason, Error: text, Time: e.Now}
	r.Status, r.EndedAt, r.NextAt, r.Unknown = Failed, e.Now, time.Time{}, false
	r.Told = !e.Policy.Callback
	return r
}

func told(r Record, e Event) (Record, bool) {
	switch {
	case r.Status == Responded:
		r.Status, r.EndedAt = Done, e.Now
	case r.Status == Failed && !r.Told:
		r.Told = true
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
	r.Generation, r.Failure, r.Told = r.Generation+1, nil, false
	r.EndedAt, r.NextAt, r.ExpiresAt = time.Time{}, time.Time{}, time.Time{}
	if stage == ToSender {
		// The receiver has done its part; only the sender has to be told again.
		r.Status = Responded
		if !e.Policy.Callback {
			r.Status, r.EndedAt = Done, e.Now
		}
		return r, true
	}
	r.Status, r.Attempt = Arrived, 0
	if e.Policy.StatusEndpoint && (stage == FromReceiver || reason == UnknownOutcome) {
		// The receiver has it, or may: it is asked before anything is sent.
		r.Status, r.Unknown, r.SentAt = Sending, true, e.Now
	}
	return r, true
}
