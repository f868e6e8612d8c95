// Package remote implements commands that make requests to a running broker or relay.
package remote

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
	"github.com/jetpull/jetpull/internal/service/progress"
	"github.com/jetpull/jetpull/internal/watch"
)

// The environment variables of commands that are clients of a broker or a relay.
const (
	BrokerURL   = "JETPULL_BROKER_URL"
	BrokerToken = "JETPULL_BROKER_ADMIN_TOKEN" // the broker itself reads it too
	RelayURL    = "JETPULL_RELAY_URL"
	RelayToken  = "JETPULL_RELAY_TOKEN"
)

const defaultURL = "http://127.0.0.1:8080"

// API describes a server and its client. Commands make its requests.
type API struct {
	// System is the name of the command that runs the server.
	System string
	// The environment variables for the flags --url and TokenFlag, and a description of the token's owner.
	EnvURL, EnvToken, TokenFlag, TokenOf string
	// The errors of the server's client.
	Denied, Unavailable, NotFound error
	// Send makes a request with the server's client. If token is empty, it sends none.
	Send func(ctx context.Context, base, token string, r Request, answer any) (http.Header, error)
	// More adds further flags for the server. It may be nil.
	More func(*pflag.FlagSet)

	// Words describes the words in capitals of usage lines.
	Words map[string]Word
	// Field returns the field or parameter that a flag sets.
	Field func(flag string) string
	// Page returns the items of a page of a list, and the path of the next page, which is "" after the last page.
	Page func(c *Call, path string, answer json.RawMessage) (items []json.RawMessage, next string, err error)
	// Linked replaces links in a list by their objects. It is nil if lists have no links.
	Linked func(c *Call, items []json.RawMessage) ([]json.RawMessage, error)
	// Operation parses an operation. Unit names one of its items, OperationWord its word, and two commands show its progress and cancel it.
	Operation                                           func(answer json.RawMessage) (Operation, error)
	Unit, OperationWord, OperationShow, OperationCancel string

	// The values of flags.
	url, token string
	timeout    time.Duration
}

// Request is a request to a server.
type Request struct {
	Method, Path string
	Header       http.Header
	Body         any           // encoded as JSON; a []byte is sent as it is
	Wait         time.Duration // added to --timeout
}

// register adds the flags that select the server to a command and its subcommands.
func (a *API) register(cmd *cobra.Command) {
	flags := cmd.PersistentFlags()
	flags.StringVar(&a.url, "url", "", "`URL` of the "+a.System+"; by default $"+a.EnvURL+", or else "+defaultURL)
	flags.StringVar(&a.token, a.TokenFlag, "", "`TOKEN` of "+a.TokenOf+"; prefer $"+a.EnvToken+": other users of this machine can see the command line")
	flags.DurationVar(&a.timeout, "timeout", 10*time.Second, "time limit of a request; the time of --wait is added to it")
	flags.Bool("json", false, "print JSON, one value per line; errors too")
	if a.More != nil {
		a.More(flags)
	}
}

// request makes a request. answer points to a json.RawMessage, or to another type that Send accepts.
func (a *API) request(ctx context.Context, r Request, answer any) (http.Header, error) {
	base := a.base()
	if err := cli.CheckURL("--url", base); err != nil {
		return nil, err
	}
	return a.Send(ctx, base, a.secret(), r, answer)
}

func (a *API) base() string { return cmp.Or(a.url, os.Getenv(a.EnvURL), defaultURL) }

func (a *API) secret() string { return cmp.Or(a.token, os.Getenv(a.EnvToken)) }

// Ask makes a request, and decodes the answer into view unless that is nil.
func (a *API) Ask(ctx context.Context, r Request, view any) (answer json.RawMessage, header http.Header, err error) {
	ctx, cancel := context.WithTimeout(ctx, a.timeout+r.Wait)
	defer cancel()
	header, err = a.request(ctx, r, &answer)
	if err != nil || view == nil {
		return answer, header, err
	}
	if err := json.Unmarshal(answer, view); err != nil {
		return nil, nil, fmt.Errorf("read the %s's answer to %s %s: %w", a.System, r.Method, r.Path, err)
	}
	return answer, header, nil
}

// Get makes a GET request for a path. It decodes the answer as [API.Ask] does.
func (a *API) Get(ctx context.Context, path string, view any) (json.RawMessage, error) {
	answer, _, err := a.Ask(ctx, Request{Method: http.MethodGet, Path: path}, view)
	return answer, err
}

// Stream makes a GET request and returns the body, without a timeout, because it may be long.
func (a *API) Stream(ctx context.Context, path string) (body io.ReadCloser, err error) {
	_, err = a.request(ctx, Request{Method: http.MethodGet, Path: path}, &body)
	return body, err
}

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
	rate, _ := c.Cmd.Flags().GetFloat64("rate") // Paced has added it
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
		matched, err = o.Matched, cli.Answer(c.Cmd, answer, "%s\n", progress.Plural(o.Matched, c.Unit))
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
	return o.Matched, cli.Answer(c.Cmd, answer, "%s %s: %s, %s of %s\n", o.Verb, o.ID, o.State, progress.Count(o.Done),
		progress.Plural(o.Matched, c.Unit))
}
