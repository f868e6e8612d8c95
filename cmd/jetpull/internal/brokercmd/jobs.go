package brokercmd

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/jetpull/jetpull/broker/client"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/remote"
	"github.com/jetpull/jetpull/internal/service/httpserve"
	"github.com/jetpull/jetpull/internal/service/progress"
)

var jobsPath = words["CONSUMER"].Item + "/jobs"

// job returns the job of a message, and its ID.
func job(c *remote.Call, message string) (id string, job json.RawMessage, err error) {
	path := c.To(jobsPath) + "?message=" + url.QueryEscape(message)
	jobs, err := c.Items(c.Cmd.Context(), path, 1)
	switch {
	case err != nil:
		return "", nil, err
	case len(jobs) == 0:
		return "", nil, fmt.Errorf("consumer %q has no job of message %q: it began after it, does not get its event type, or the job was deleted",
			c.Names["CONSUMER"], message)
	}
	var view struct{ ID string }
	err = json.Unmarshal(jobs[0], &view)
	return view.ID, jobs[0], err
}

func showJob(c *remote.Call) error {
	_, answer, err := job(c, c.Names["MESSAGE"])
	if err != nil {
		return err
	}
	return cli.Show(c.Cmd, answer)
}

func attempts(c *remote.Call) error {
	id, _, err := job(c, c.Names["MESSAGE"])
	if err != nil {
		return err
	}
	c.Path = words["CONSUMER"].Item + "/job/" + httpserve.EscapeID(id) + "/attempts"
	return c.List()
}

// tokenVariables are the environment variables for the tokens of a channel, a producer and a consumer.
var tokenVariables = []string{"JETPULL_BROKER_CHANNEL_TOKEN", "JETPULL_BROKER_PRODUCER_TOKEN", "JETPULL_BROKER_CONSUMER_TOKEN"}

// tokens returns headers with the tokens that the broker requires without an admin token: from the environment, or as far as the broker shows them.
func tokens(c *remote.Call) (header http.Header, err error) {
	header = http.Header{}
	for _, variable := range tokenVariables {
		word := strings.TrimSuffix(strings.TrimPrefix(variable, "JETPULL_BROKER_"), "_TOKEN")
		name, known := "X-Broker-"+word+"-Token", os.Getenv(variable)
		if known != "" {
			header.Set(name, known)
		}
		if c.Names[word] == "" || known != "" {
			continue
		}
		var view struct{ Token string }
		if _, err := c.Get(c.Cmd.Context(), c.To(words[word].Item), &view); err != nil {
			return header, err
		}
		header.Set(name, view.Token)
	}
	return header, nil
}

func cancelScheduled(c *remote.Call) error {
	path := c.To(c.Path)
	var message struct{ ProducedBy string }
	if _, err := c.Get(c.Cmd.Context(), path, &message); err != nil {
		return err
	}
	c.Names["PRODUCER"] = message.ProducedBy
	header, err := tokens(c)
	if err != nil && !errors.Is(err, client.ErrNotFound) { // a producer may be deleted before its scheduled messages
		return err
	}
	header.Set("X-Broker-Producer-Id", message.ProducedBy)
	_, _, err = c.Ask(c.Cmd.Context(), remote.Request{Method: http.MethodDelete, Path: path, Header: header}, nil)
	return err
}

func purge(c *remote.Call) error {
	messages := c.Args[2:]
	if c.Is("all") == (len(messages) > 0) {
		return cli.Usage(errors.New("give messages, whose IDs jobs ls shows, or --all"))
	}
	header, err := tokens(c)
	if err != nil {
		return err
	}
	remove := func(what string, view any) (json.RawMessage, error) {
		r := remote.Request{Method: http.MethodDelete, Path: c.To(words["CONSUMER"].Item) + what, Header: header}
		answer, _, err := c.Ask(c.Cmd.Context(), r, view)
		return answer, err
	}
	if len(messages) == 0 {
		var purged struct{ DeletedCount int }
		answer, err := remove("/dlq", &purged)
		if err != nil {
			return err
		}
		return cli.Answer(c.Cmd, answer, "%s deleted\n", progress.Plural(purged.DeletedCount, "dead job"))
	}
	for _, c.Names["MESSAGE"] = range messages {
		id, view, err := job(c, c.Names["MESSAGE"])
		var has struct{ Status string }
		if err == nil && json.Unmarshal(view, &has) == nil && has.Status != "DEAD" {
			err = fmt.Errorf("its job is not dead, but %s", has.Status)
		}
		if err == nil {
			_, err = remove("/job/"+id, nil)
		}
		if err != nil {
			return fmt.Errorf("message %q: %w", c.Names["MESSAGE"], err)
		}
	}
	return nil
}

// operate starts an operation on the jobs of a consumer.
func operate(c *remote.Call) error {
	_, err := c.Operate(c.To(c.Path), c.Given())
	return err
}

// broadcastVerb returns the verb that stores a message.
func broadcastVerb() remote.Verb {
	header, names := http.Header{}, []string{}
	return remote.Verb{
		Use: "broadcast CHANNEL PRODUCER [PAYLOAD]", Short: "Broadcast a message to a channel", Path: words["CHANNEL"].Item + "/broadcast",
		Long: `Broadcast a message as a producer, and print its path. The payload is the argument or
standard input, byte for byte.

The token of --admin-token may be an access token with the role publish. Or give the tokens
of channel and producer in $JETPULL_BROKER_CHANNEL_TOKEN and $JETPULL_BROKER_PRODUCER_TOKEN.
Otherwise they are read from the broker, which does not show tokens that it stores as hashes.`,
		Example: `  jetpull broker broadcast orders shop '{"id": 12}' --id order-12 --event-type order.paid
  jetpull broker broadcast orders shop -H 'Content-Type: image/png' <picture.png`,
		Flags: func(flags *pflag.FlagSet) {
			for _, f := range [][3]string{
				{"id", "X-Broker-Message-ID", "`ID` of the message, unique in the channel; by default the broker generates one"},
				{"event-type", "X-Broker-Event-Type", "event `TYPE`, which the filters of consumers match"},
				{"priority", "X-Broker-Message-Priority", "`NUMBER` from 0; jobs of a higher one go first"},
				{"at", "X-Broker-Scheduled-For", "`TIME` at which to broadcast it, such as 2030-01-02T15:04:05Z; by default at once"},
			} {
				flags.Func(f[0], f[2], func(value string) error {
					header.Set(f[1], value)
					return nil
				})
			}
			cli.HeaderFlag(flags, func(name, value string) {
				header.Set(name, value)
				if name = http.CanonicalHeaderKey(name); name != "Content-Type" && !strings.HasPrefix(name, "X-Broker-") {
					names = append(names, name) // a header to keep; the others are the broker's own
				}
			})
		},
		Run: func(c *remote.Call) error {
			payload, err := cli.ArgumentOrInput(c.Cmd, c.Args, 2)
			if err != nil {
				return err
			}
			given, err := tokens(c)
			if err != nil && !errors.Is(err, client.ErrDenied) { // an access token for publishing may not read tokens, and needs none
				return err
			}
			for name, values := range given {
				header[name] = values
			}
			header.Set("X-Broker-Producer-Id", c.Names["PRODUCER"])
			header.Set("X-Broker-Metadata-Headers", strings.Join(names, ","))
			_, answer, err := c.Ask(c.Cmd.Context(), remote.Request{Method: http.MethodPost, Path: c.To(c.Path), Header: header, Body: payload}, nil)
			if err != nil {
				return err
			}
			at := answer.Get("Location")
			return cli.Answer(c.Cmd, map[string]string{"location": at}, "%s\n", at)
		},
	}
}

// claimVerb returns the verb that claims jobs of a pull consumer.
func claimVerb() remote.Verb {
	var count int
	var wait time.Duration
	var settle string
	return remote.Verb{
		Use: "claim CHANNEL CONSUMER", Short: "Claim jobs of a pull consumer", Path: words["CONSUMER"].Item,
		Long: `Claim up to --count queued jobs of a pull consumer, print them, and then settle them:
as DELIVERED, as DEAD, or with --settle none not at all. Then the claims end after 32.25
seconds by default, and the jobs are queued again with one retry more, unless a request
with the ClaimToken that --json prints has settled them. It exits with 4 if no job was
queued in time.

The tokens of channel and consumer are those of $JETPULL_BROKER_CHANNEL_TOKEN and
$JETPULL_BROKER_CONSUMER_TOKEN, or are read from the broker, which needs the admin token.`,
		Example: `  jetpull broker claim orders warehouse --count 10 --wait 20s
  jetpull broker claim orders warehouse --settle none --json | jq -r .Message.Payload`,
		Flags: func(flags *pflag.FlagSet) {
			cli.Int(flags, &count, "count", 1, 1, 100, "claim this many jobs at most")
			cli.Duration(flags, &wait, "wait", 0, 0, "how long to wait for the first job, up to a minute")
			cli.OneOf(flags, &settle, "settle", "delivered", "what to report of the jobs once they are printed: delivered, dead or none", "delivered",
				"dead", "none")
		},
		Run: func(c *remote.Call) error {
			header, err := tokens(c)
			if err != nil {
				return err
			}
			query := url.Values{"limit": {strconv.Itoa(count)}, "wait": {wait.String()}}
			var claimed struct{ Result []json.RawMessage }
			if _, _, err := c.Ask(c.Cmd.Context(), remote.Request{
				Method: http.MethodPost, Path: c.To(c.Path) + "/claim?" + query.Encode(), Header: header, Wait: wait,
			}, &claimed); err != nil {
				return err
			}
			if len(claimed.Result) == 0 {
				return cli.Late("no job was queued within %s", wait)
			}
			columns := []string{"Message.MessageID", ">Priority", "Message.EventType", "Message.ContentType", "Message.Payload"}
			if err := cli.List(c.Cmd, columns, cli.All(claimed.Result)); err != nil || settle == "none" {
				return err
			}
			return settleAll(c, header, claimed.Result, strings.ToUpper(settle))
		},
	}
}

// settleAll reports the outcome of claimed jobs in one request.
func settleAll(c *remote.Call, header http.Header, jobs []json.RawMessage, state string) error {
	type transition struct{ ID, ClaimToken, NextState string }
	transitions := make([]transition, len(jobs))
	for i, job := range jobs {
		if err := json.Unmarshal(job, &transitions[i]); err != nil {
			return fmt.Errorf("read the claimed job: %w", err)
		}
		transitions[i].NextState = state
	}
	header.Set("Content-Type", "application/json")
	var settled struct {
		Result []struct {
			ID, Error string
			Status    int
		}
	}
	_, _, err := c.Ask(c.Cmd.Context(), remote.Request{
		Method: http.MethodPost, Path: c.To(jobsPath), Header: header, Body: map[string]any{"Transitions": transitions},
	}, &settled)
	for _, r := range settled.Result {
		if r.Status != http.StatusAccepted {
			err = errors.Join(err, fmt.Errorf("job %s is not %s: %s", r.ID, state, r.Error))
		}
	}
	return err
}
