package perform

import (
	"context"
	"errors"
	"os/exec"
	"sync"
	"time"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/pulling"
)

// Result is what came of one attempt to handle a message, as --json prints it.
type Result struct {
	StreamSeq uint64   `json:"stream_seq"`
	Subject   string   `json:"subject"`
	Delivered uint64   `json:"delivered"`
	Outcome   string   `json:"outcome"`         // acknowledged, failed, or a [jetpull.EventOutcome]
	Delay     *float64 `json:"delay,omitempty"` // in seconds, of a message that is retried
	Exit      *int     `json:"exit,omitempty"`  // the exit code of the command
	Seconds   float64  `json:"seconds"`
	Error     string   `json:"error,omitempty"`
}

// Results writes a line of JSON for each attempt. Of one that has failed, only the library knows the outcome: it depends on the attempts before
// and on the options.
type Results struct {
	Out     *pulling.Printer
	Exits   bool // an attempt is a process, and ends with an exit code
	AckNone bool

	open sync.Map // a Result for each *jetpull.Msg that failed, until its outcome is known
}

// Of is a handler whose results are written.
func (r *Results) Of(handle jetpull.Handler) jetpull.Handler {
	return func(ctx context.Context, m *jetpull.Msg) error {
		begin := time.Now()
		err := handle(ctx, m)
		result := Result{StreamSeq: m.Sequence(), Subject: m.Subject(), Delivered: m.Delivered(), Seconds: time.Since(begin).Seconds()}
		if exit, failed := errors.AsType[*exec.ExitError](err); r.Exits && failed && exit.ExitCode() >= 0 {
			result.Exit = new(exit.ExitCode())
		} else if r.Exits && err == nil {
			result.Exit = new(0)
		}
		switch {
		case errors.Is(err, pulling.ErrOutput):
			return err
		case err == nil:
			result.Outcome = "acknowledged"
			return cli.WriteJSON(r.Out, result)
		}
		result.Outcome, result.Error = string(jetpull.HandedBack), cli.Plain(err) // unless the library reports an event: the run is over
		if r.AckNone {
			result.Outcome = "failed" // it is not delivered again
			return errors.Join(cli.WriteJSON(r.Out, result), err)
		}
		r.open.Store(m, result)
		return err
	}
}

// Event writes the result of an attempt that has failed. An output that takes no more ends the run with the next message.
func (r *Results) Event(e jetpull.Event) {
	failed, ok := r.open.LoadAndDelete(e.Msg)
	result, _ := failed.(Result)
	if !ok { // it was given up before its handler began
		result = Result{StreamSeq: e.Msg.Sequence(), Subject: e.Msg.Subject(), Delivered: e.Msg.Delivered(), Error: cli.Plain(e.Err)}
	}
	if result.Outcome = string(e.Outcome); e.Outcome == jetpull.Retried {
		result.Delay = new(e.After.Seconds())
	}
	_ = cli.WriteJSON(r.Out, result)
}

// Rest writes the results of attempts that the end of the run has cut off, whose messages were handed back.
func (r *Results) Rest() error {
	for _, result := range r.open.Range {
		if err := cli.WriteJSON(r.Out, result); err != nil {
			return err
		}
	}
	return nil
}
