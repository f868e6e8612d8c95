package relaycmd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/remote"
	"github.com/jetpull/jetpull/internal/service/progress"
	"github.com/jetpull/jetpull/relay/client"
)

var words = map[string]remote.Word{
	"RECEIVER":  {Kind: "receiver", Item: "/v1/receivers/RECEIVER", Ls: "receivers ls"},
	"SENDER":    {Kind: "sender", Item: "/v1/senders/SENDER", Ls: "senders ls"},
	"OPERATION": {Kind: "operation", Item: "/v1/operations/OPERATION", Ls: "operations ls"},
}

func clients() []*cobra.Command {
	api := &remote.API{
		System: "relay", EnvURL: remote.RelayURL, EnvToken: remote.RelayToken, TokenFlag: "token", TokenOf: "a sender or the administration",
		Denied: client.ErrUnauthorized, Unavailable: client.ErrUnavailable, NotFound: client.ErrNotFound,
		Send: func(ctx context.Context, base, token string, r remote.Request, answer any) (http.Header, error) {
			if text, ok := answer.(*json.RawMessage); ok {
				answer = (*[]byte)(text) // may be empty
			}
			return nil, client.New(base, token, nil).Call(ctx, r.Method, r.Path, r.Body, answer)
		},
		Words: words, Field: snake, Page: page,
		Operation: func(answer json.RawMessage) (o remote.Operation, err error) {
			err = json.Unmarshal(answer, &o)
			o.Running = o.State == "running"
			return o, err
		},
		Unit: "message", OperationWord: "OPERATION", OperationShow: "operations status --follow OPERATION",
		OperationCancel: "operations cancel OPERATION",
	}
	cmds := api.Commands(nouns)
	for _, v := range []remote.Verb{sendVerb(), statusVerb, operation("redrive", "Send failed messages again")} {
		cmds = append(cmds, api.Command(v))
	}
	return cmds
}

// timeoutFlag is the flag for the field timeout, because --timeout is for the command's own requests.
const timeoutFlag = "timeout-of-post"

// snake returns the field or parameter that a flag sets, such as rate_limit for --rate-limit.
func snake(flag string) string {
	if flag == timeoutFlag {
		return "timeout"
	}
	return strings.ReplaceAll(flag, "-", "_")
}

func page(_ *remote.Call, path string, answer json.RawMessage) (items []json.RawMessage, next string, err error) {
	var list struct {
		Items  []json.RawMessage
		Cursor string
	}
	if err := json.Unmarshal(answer, &list); err != nil || list.Cursor == "" {
		return list.Items, "", err
	}
	path, query, _ := strings.Cut(path, "?")
	q, err := url.ParseQuery(query)
	q.Set("cursor", list.Cursor)
	return list.Items, path + "?" + q.Encode(), err
}

var nouns = []remote.Noun{
	{Name: "receivers", Short: "Show and configure receivers", Verbs: []remote.Verb{
		{
			Use: "ls", Short: "List the receivers", Path: "/v1/receivers",
			Columns: []string{"name", "post_endpoint", ">rate_limit", ">window_size", "order", "paused", "state.disabled", "state.breaker", ">state.backlog"},
		},
		{Use: "show RECEIVER", Short: "Show a receiver, with its breaker, window and backlog; durations are in seconds"},
		{
			Use: "put RECEIVER", Short: "Create or change a receiver", Run: put, Replaced: "Secrets that are not\ngiven stay.",
			Long: `Create or change a receiver. A setting that neither --file nor a flag gives stays as
it is, and has its default if the receiver is new. Give secrets in --file: other users
of the machine can see a command line. replace enables a receiver that answered 410;
put does so only with {"enable": true} in --file.`,
			Example: `  jetpull relay receivers put ci --post-endpoint http://127.0.0.1:9090/hook --rate-limit 200
  jetpull relay receivers put ci --file ci.json --paused`,
			Fields: func(fields *pflag.FlagSet) {
				fields.String("post-endpoint", "", "`URL` that messages are POSTed to")
				fields.String("status-endpoint", "", "`URL` with {source_id} and {message_id} that returns the result of a message; empty: none")
				fields.Int("rate-limit", 0, "maximum POSTs in any window of --window-size; 0: no limit")
				fields.Float64("window-size", 1, "`SECONDS` of the window of --rate-limit")
				fields.Float64("retry-after", 5, "`SECONDS` between two attempts")
				fields.Int("max-retries", 5, "attempts after the first; then the message fails; 0: none")
				fields.Float64(timeoutFlag, 30, "`SECONDS` that a POST may take, with its answer")
				fields.String("order", "none", "order of POSTs: none, source (one message of a source at a time) or receiver (one message at a time)")
				fields.String("unknown-outcome", "at_least_once", "after a POST without an answer: at_least_once sends the message again, at_most_once fails it")
				fields.Float64("ttl", 0, "`SECONDS` from the acceptance of a message to its response, after which it fails; 0: no limit")
				fields.Bool("paused", false, "send nothing; messages wait until --paused=false")
			},
		},
		{Use: "rm RECEIVER", Short: "Remove a receiver; messages that wait for it fail", Method: http.MethodDelete},
	}},
	{Name: "senders", Short: "Show and configure senders", Verbs: []remote.Verb{
		{Use: "ls", Short: "List the senders", Path: "/v1/senders", Columns: []string{"name", "callback_endpoint", "sources", ">secret_count"}},
		{Use: "show SENDER", Short: "Show a sender"},
		{
			Use: "put SENDER", Short: "Create or change a sender", Run: put, Replaced: "A token\nand secrets that are not given stay.",
			Long: `Create or change a sender. A field that neither --file nor a flag gives stays. A new
sender needs --sources, and a token in --file, where secrets go too: other users of the
machine can see a command line. Without a callback endpoint it gets no callbacks.`,
			Example: `  jetpull relay senders put shop --file shop.json --callback-endpoint http://127.0.0.1:9091/done
  echo '{"token": "'"$TOKEN"'"}' | jetpull relay senders put shop --file - --sources shop/`,
			Fields: func(fields *pflag.FlagSet) {
				fields.String("callback-endpoint", "none", "`URL` to which the results of messages are POSTed, or none")
				fields.StringArray("sources", nil, "`PREFIX` of the sources for which the sender may send; may be given several times; an empty one allows all")
			},
		},
		{Use: "rm SENDER", Short: "Remove a sender; it gets no more callbacks", Method: http.MethodDelete},
	}},
	{Name: "failed", Short: "Show and settle failed messages", Verbs: []remote.Verb{
		{
			Use: "ls", Short: "List failed messages, newest first", Path: "/v1/failed", Flags: filter,
			Columns: []string{">id", "time", "source_id", "message_id", "receiver", "stage", "reason", ">attempts", "error"},
		},
		operation("skip", "Take failed messages off the list; they stay FAILED"),
		operation("purge", "Take failed messages off the list and drop their payloads"),
	}},
	{Name: "operations", Short: "Show and cancel operations on failed messages: redrive, skip, purge", Verbs: []remote.Verb{
		{
			Use: "ls", Short: "List operations, newest first", Path: "/v1/operations",
			Columns: []string{"id", "verb", "state", ">matched", ">done", ">skipped", ">failed", "by", "began"},
		},
		{Use: "status OPERATION", Short: "Show the progress of an operation", Run: (*remote.Call).OperationStatus, Flags: remote.Follow},
		{Use: "cancel OPERATION", Short: "End an operation; messages that it has handled stay so", Method: http.MethodDelete},
	}},
}

// put changes an existing object, or creates it. It rejects a new sender without a token before the relay does, because only the command can
// explain how to give one.
func put(c *remote.Call) error {
	body, err := c.Body()
	if err != nil {
		return err
	}
	if c.Method = http.MethodPatch; !c.Replace {
		if err = c.RequestWith(body); !errors.Is(err, client.ErrNotFound) {
			return err
		}
		if token, _ := body["token"].(string); c.Word() == "SENDER" && token == "" {
			return cli.Usage(fmt.Errorf(`sender %q is new and needs a token of its own, which its requests carry: give {"token": "…"} in --file`,
				c.Names["SENDER"]))
		}
		delete(body, "enable") // a new receiver is enabled
	}
	c.Method = http.MethodPut
	return c.RequestWith(body)
}

func filter(flags *pflag.FlagSet) {
	flags.String("receiver", "", "only messages for the receiver `NAME`")
	flags.String("source", "", "only messages of the source `ID`")
	flags.String("stage", "", "only messages that failed at `STAGE`, as failed ls shows it")
	flags.String("reason", "", "only messages that failed for `REASON`, as failed ls shows it")
	cli.Past(flags, new(time.Time), "since", "only messages that failed since")
	cli.Past(flags, new(time.Time), "until", "only messages that failed before")
}

// operation returns a verb that starts an operation of the relay on failed messages.
func operation(verb, short string) remote.Verb {
	return remote.Verb{
		Use: verb + " [ID...]", Short: short,
		Long: short + `.

Give their IDs, as failed ls shows them, or flags that select them. The relay does
this in the background: an interrupt ends this command but not the operation.`,
		Flags: func(flags *pflag.FlagSet) {
			filter(flags)
			flags.Bool("all", false, "all failed messages")
			remote.Paced(flags, 0, "maximum messages per second; 0: no limit")
		},
		Run: func(c *remote.Call) error {
			ids, body, chosen := slices.Compact(slices.Sorted(slices.Values(c.Args))), map[string]any{}, c.Given()
			filtered := c.Is("all") || len(chosen) > 0
			switch {
			case len(ids) == 0 && !filtered:
				return cli.Usage(errors.New("give IDs of failed messages, flags that choose some, or --all"))
			case len(ids) > 0 && filtered:
				return cli.Usage(errors.New("give either IDs or flags that choose messages"))
			case filtered:
				body["filter"] = chosen
			default:
				body["ids"] = ids
			}
			matched, err := c.Operate("/v1/failed:"+verb, body)
			if err == nil && matched < len(ids) {
				return fmt.Errorf("%d of %s not found on the list of failed messages, which failed ls shows", len(ids)-matched, progress.Plural(len(ids), "ID"))
			}
			return err
		},
	}
}

// maxWait is the maximum wait for a response that the relay accepts.
const maxWait = 5 * time.Minute

// waitFlag adds the flag --wait for [respond].
func waitFlag(flags *pflag.FlagSet) {
	wait := flags.Duration("wait", 0, "wait for the response for a `DURATION`, at most 5m; exit code 4 without one; 0: do not wait")
	cli.Range(flags, "wait", wait, 0, maxWait)
}

func sendVerb() remote.Verb {
	m := client.Message{Headers: map[string]string{}}
	var text bool
	return remote.Verb{
		Use: "send [PAYLOAD]", Short: "Send a message",
		Long: `Send a message to a receiver. The payload is JSON, from the argument or from
standard input. A message that was sent before under the same --source and --id
is not delivered again, and its current status is printed. POST /v1/messages:batch
takes up to 1,000 messages.`,
		Example: `  jetpull relay send --source repo --id push-1 --receiver ci --wait 30s '{"branch": "main"}'`,
		Flags: func(flags *pflag.FlagSet) {
			flags.StringVar(&m.Source, "source", "", "`ID` of the source; required")
			flags.StringVar(&m.ID, "id", "", "`ID` of the message, unique for its source; required")
			flags.StringVar(&m.Receiver, "receiver", "", "`NAME` of the receiver; required")
			for _, required := range []string{"source", "id", "receiver"} {
				_ = cobra.MarkFlagRequired(flags, required) // the flag exists
			}
			cli.HeaderFlag(flags, func(name, value string) { m.Headers[name] = value })
			flags.BoolVar(&text, "text", false, "send the payload as a JSON string, whatever it is")
			waitFlag(flags)
		},
		Run: func(c *remote.Call) error {
			payload, err := cli.ArgumentOrInput(c.Cmd, c.Args, 0)
			switch {
			case err != nil:
				return err
			case text:
				m.Payload = string(payload)
			case !json.Valid(payload):
				return cli.Usage(fmt.Errorf("the payload %.40q is not JSON; give --text to send it as a string", payload))
			default:
				m.Payload = json.RawMessage(payload)
			}
			return respond(c, http.MethodPost, "/v1/messages", m)
		},
	}
}

// respond makes a request that returns the state of a message, waits for the response as long as --wait specifies, and prints it.
func respond(c *remote.Call, method, path string, body any) error {
	wait, _ := c.Cmd.Flags().GetDuration("wait") // waitFlag has added it
	if wait > 0 {
		path += "?wait=" + url.QueryEscape(wait.String())
	}
	var result client.Result
	answer, _, err := c.Ask(c.Cmd.Context(), remote.Request{Method: method, Path: path, Body: body, Wait: wait}, &result)
	if err != nil {
		return err
	}
	text := result.Status + "\n"
	if result.Responded() {
		text += progress.Escape(string(result.Response)) + "\n"
	}
	err = cli.Answer(c.Cmd, answer, "%s", text)
	switch {
	case err != nil:
		return err
	case result.Error != nil:
		return cli.Failed("the message has failed: %s: %s", result.Error.Code, result.Error.Message)
	case wait > 0 && !result.Responded():
		return cli.Late("no response within %s", wait)
	}
	return nil
}

var statusVerb = remote.Verb{
	Use: "status SOURCE MESSAGE", Short: "Show the state of a message, with each attempt",
	Long: `Show the state of a message, with each attempt. With --wait it waits for the
response and prints that instead.`,
	Path:  "/v1/messages/SOURCE/MESSAGE",
	Flags: waitFlag,
	Run: func(c *remote.Call) error {
		if wait, _ := c.Cmd.Flags().GetDuration("wait"); wait != 0 { // the flag exists
			return respond(c, http.MethodGet, c.To(c.Path)+"/response", nil)
		}
		return c.Request()
	},
}
