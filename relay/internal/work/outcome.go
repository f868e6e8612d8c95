package work

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jetpull/jetpull/internal/webhook"
	"github.com/jetpull/jetpull/relay/internal/machine"
	"github.com/jetpull/jetpull/relay/internal/store"
)

// outcome is the event that a POST ended with, without its times.
func outcome(r store.Receiver, answer *webhook.Answer, err error) machine.Event {
	event := machine.Event{Kind: machine.Answered, Outcome: machine.Retry}
	switch {
	case answer == nil:
		event.Note.Error = err.Error()
		if !errors.Is(err, webhook.ErrNotSent) {
			event.Kind = machine.Lost
		}
		return event
	case unknown(answer):
		event.Kind = machine.Lost
		event.Note.Code, event.Note.Error = answer.Code, fmt.Sprintf("the answer broke off: %v", answer.Broken)
		return event
	}
	event.Note.Code, event.Outcome = answer.Code, machine.Classify(answer.Code, r.StatusEndpoint != "")
	switch event.Outcome {
	case machine.Result:
		if answer.Code != http.StatusAccepted {
			event.Response, event.Truncated = response(answer), answer.Truncated
		}
	case machine.Retry, machine.Refused:
		event.Note.Error = fmt.Sprintf("answered with status %d: %.200q", answer.Code, answer.Body)
		event.RetryAfter = retryAfter(answer.Header)
	case machine.Pending:
	}
	return event
}

// health is what a POST says of its receiver.
type health int

const (
	noPOST health = iota // none was made
	well
	unwell
	neither // it says nothing about whether the receiver works
)

// judge says whether a receiver works, for how long it wants no POST, and whether its endpoint is gone for good.
func judge(answer *webhook.Answer, err error) (verdict health, pause time.Duration, gone bool) {
	switch {
	case answer == nil && errors.Is(err, webhook.ErrForbiddenAddress):
		return neither, 0, false
	case answer == nil, unknown(answer):
		return unwell, 0, false
	case answer.Code == http.StatusGone:
		return neither, 0, true
	case answer.Code == http.StatusTooManyRequests, answer.Code == http.StatusServiceUnavailable:
		if pause = retryAfter(answer.Header); pause > 0 {
			return neither, pause, false
		}
	}
	if answer.Code >= http.StatusInternalServerError {
		return unwell, 0, false
	}
	return well, 0, false
}

// unknown tells whether an answer was to have a response that broke off.
func unknown(a *webhook.Answer) bool {
	return a.Broken != nil && a.Code != http.StatusAccepted && machine.Classify(a.Code, false) == machine.Result
}

// maxEscape is how many bytes JSON makes of one at most: a control character, and <, > or &, are six.
const maxEscape = len(`\u0000`)

// fit cuts the body of an answer until its response, which is stored as JSON, is no larger than what the server takes.
func (w *core) fit(answer *webhook.Answer) {
	most := w.store.MaxPayload()
	for answer != nil && maxEscape*len(answer.Body) > most-len(`""`) && len(answer.Body) > 0 {
		stored, err := json.Marshal(response(answer))
		if err != nil || len(stored) <= most {
			return
		}
		answer.Body, answer.Truncated = answer.Body[:len(answer.Body)*most/len(stored)], true
	}
}

// nested is JSON a few levels deeper, as it is in records, answers and callbacks: what is nested too deep there cannot be read.
func nested(value []byte) []byte { return slices.Concat([]byte("[[[["), value, []byte("]]]]")) }

// response is the body of an answer as the sender gets it: the receiver's JSON, or its text as a string.
func response(a *webhook.Answer) json.RawMessage {
	switch {
	case len(a.Body) == 0:
		return nil
	case !a.Truncated && utf8.Valid(a.Body) && json.Valid(a.Body) && json.Valid(nested(a.Body)):
		return a.Body
	}
	// A string of valid UTF-8 can always be written.
	text, _ := json.Marshal(strings.ToValidUTF8(string(a.Body), "\uFFFD"))
	return text
}
