package remote

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
	"github.com/jetpull/jetpull/internal/service/progress"
	"github.com/jetpull/jetpull/internal/watch"
)

// Operation is work that a server does in the background on many items.
type Operation struct {
	ID, Verb, State string
	Running         bool
	Matched, Done   int
}

// Paced adds the flags of a verb that starts an operation. rate is the server's default.
func Paced(flags *pflag.FlagSet, rate float64, usage string) {
	flags.Float64("rate", rate, usage)
	flags.Bool("dry-run", false, "only print the number of matching items")
	flags.Bool("detach", false, "start it and do not wait for its end")
}

// Operate starts an operation and follows it to its end, or only counts the matching items. It returns their number. It adds the fields for the
// flags of [Paced] to body.
func (c *Call) Operate(path string, body map[string]any) (matched int, err error) {
	dry := c.Is("dry-run")
	rate, err := c.Cmd.Flags().GetFloat64("rate")
	if err != nil {
		return 0, err
	}
	if math.IsNaN(rate) || math.IsInf(rate, 0) {
		return 0, cli.Usage(fmt.Errorf("--rate %v is no number", rate))
	}
	body[c.Field("rate")], body[c.Field("dry-run")] = rate, dry
	answer, header, err := c.Ask(c.Cmd.Context(), Request{Method: http.MethodPost, Path: path, Body: body}, nil)
	if err != nil {
		return 0, err
	}
	var o Operation
	if len(answer) > 0 {
		if o, err = c.Operation(answer); err != nil {
			return 0, err
		}
	}
	if dry {
		matched, err = o.Matched, cli.Answer(c.Cmd, answer, "%s %s\n", progress.Count(o.Matched), c.Units)
	} else {
		at := header.Get("Location")
		c.Names[c.OperationWord] = cmp.Or(o.ID, at[strings.LastIndexByte(at, '/')+1:])
		matched, err = c.follow(answer, !c.Is("detach"))
	}
	if err == nil && matched == 0 {
		err = c.Exists()
	}
	return matched, err
}

// OperationStatus shows an operation. With --follow, it shows the progress until the end.
func (c *Call) OperationStatus() error {
	_, err := c.follow(nil, c.Is("follow"))
	return err
}

// Follow adds the flag of [Call.OperationStatus].
func Follow(flags *pflag.FlagSet) { flags.Bool("follow", false, "show the progress until it ends") }

// lookEvery is the interval at which the state of an operation is read.
const lookEvery = 200 * time.Millisecond

// follow prints an operation, and returns the number of its items. If wait is true, it first waits for the end. answer is the operation's state,
// or empty. A server that restarts continues the operation, so follow continues too.
func (c *Call) follow(answer json.RawMessage, wait bool) (matched int, err error) {
	ctx, path := c.Cmd.Context(), c.To(c.Words[c.OperationWord].Item)
	if len(answer) == 0 {
		if answer, err = c.Get(ctx, path, nil); err != nil {
			return 0, err
		}
	}
	o, err := c.Operation(answer)
	if err != nil {
		return 0, err
	}
	if wait && o.Running {
		bar := progress.New(c.Cmd.ErrOrStderr(), o.Verb, int64(o.Matched))
		defer bar.Clear()
		bar.Add(o.Done)
		show := c.line(c.OperationShow)
		for answered := time.Now(); o.Running; {
			now, err := c.Get(ctx, path, nil)
			switch {
			case err == nil:
				before := o.Done
				if o, err = c.Operation(now); err != nil {
					return 0, err
				}
				answer, answered = now, time.Now()
				bar.Add(o.Done - before)
			case ctx.Err() != nil:
				bar.Clear()
				cli.Notice(c.Cmd.ErrOrStderr(), "The %s continues in the %s, with %s of %s done.\n  %s   shows its progress\n  %s   cancels it\n",
					o.Verb, c.System, progress.Count(o.Done), progress.Count(o.Matched), show, c.line(c.OperationCancel))
				return 0, cli.ErrInterrupted
			case !errors.Is(err, c.Unavailable) || time.Since(answered) >= c.timeout:
				return 0, fmt.Errorf("%w; the %s continues when the %s answers again: %s", err, o.Verb, c.System, show)
			}
			if o.Running {
				_ = watch.Sleep(ctx, lookEvery) // an interrupt ends the next request
			}
		}
		bar.Clear()
	}
	return o.Matched, cli.Answer(c.Cmd, answer, "%s %s: %s, %s of %s %s\n", o.Verb, o.ID, o.State, progress.Count(o.Done),
		progress.Count(o.Matched), c.Units)
}
