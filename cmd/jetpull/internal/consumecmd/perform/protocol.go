package perform

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
)

// given is a message as a worker reads it, on one line. docs/command.md describes it.
type given struct {
	ID      uint64      `json:"id"` // the stream sequence
	Subject string      `json:"subject"`
	Headers nats.Header `json:"headers,omitempty"`
	cli.Payload
	Attempt uint64 `json:"attempt"`
}

// answer is a line that a worker writes.
type answer struct {
	ID      uint64   `json:"id"`
	Outcome string   `json:"outcome"`
	Delay   *float64 `json:"delay"` // in seconds
	Reason  string   `json:"reason"`
}

// parseAnswer parses a line. An unknown field is an error, because it could be a mistyped delay.
func parseAnswer(line []byte) (a answer, err error) {
	in := json.NewDecoder(bytes.NewReader(line))
	in.DisallowUnknownFields()
	if err := in.Decode(&a); err != nil {
		return a, fmt.Errorf(`it is not an object such as {"id":1,"outcome":"ack"}: %w; print other text to standard error`, err)
	}
	switch _, err := in.Token(); {
	case err != io.EOF:
		return a, errors.New("there is more after the object")
	case a.Outcome != "ack" && a.Outcome != "nak" && a.Outcome != "term" && a.Outcome != "progress":
		return a, fmt.Errorf("the outcome %q is none of ack, nak, term and progress", a.Outcome)
	case a.Delay != nil && a.Outcome != "nak":
		return a, errors.New("a delay belongs to nak")
	case a.Delay != nil && (*a.Delay < 0 || *a.Delay > cli.MaxLong.Seconds()):
		return a, fmt.Errorf("the delay %v is not in 0..%v seconds", *a.Delay, cli.MaxLong.Seconds())
	case a.Reason != "" && a.Outcome != "nak" && a.Outcome != "term":
		return a, errors.New("a reason belongs to nak or term")
	}
	return a, nil
}

// result returns the handler's result for an answer other than progress.
func (a *answer) result() error {
	reason := cmp.Or(a.Reason, "the worker answered "+a.Outcome)
	switch {
	case a.Outcome == "ack":
		return nil
	case a.Outcome == "term":
		return jetpull.Terminate(reason, nil)
	case a.Delay != nil:
		return jetpull.Retry(time.Duration(*a.Delay*float64(time.Second)), errors.New(reason))
	}
	return errors.New(reason)
}
