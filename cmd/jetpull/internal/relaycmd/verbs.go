package relaycmd

import (
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
	"github.com/jetpull/jetpull/internal/progress"
	"github.com/jetpull/jetpull/relay/client"
)

var words = map[string]remote.Word{
	"RECEIVER":  {Kind: "receiver", Item: "/v1/receivers/RECEIVER", List: "/v1/receivers", Ls: "receivers ls"},
	"SENDER":    {Kind: "sender", Item: "/v1/senders/SENDER", List: "/v1/senders", Ls: "senders ls"},
	"OPERATION": {Kind: "operation", Item: "/v1/operations/OPERATION", List: "/v1/operations", Ls: "operations ls"},
}

// clients are the commands that are clients of a running relay.
func clients(asJSON *bool) []*cobra.Command {
	r := remote.Relay(asJSON)
	api := &remote.API{
		Server: r, AddFlags: r.Flags, Words: words, Field: snake, Page: page, Name: nameOf,
		Choices: map[string][]string{"order": {"none", "source", "receiver"}, "unknown-outcome": {"at_least_once", "at_most_once"}},
		Operation: func(answer json.RawMessage) (o remote.Operation, err error) {
			err = json.Unmarshal(answer, &o)
			o.Running = o.State == "running"
			return o, err
		},
		Units: "messages", OperationWord: "OPERATION", OperationShow: "operations status --follow OPERATION", OperationCancel: "operations cancel OPERATION",
	}
	cmds := api.Commands(nouns)
	for _, v := range []remote.Verb{sendVerb(), statusVerb, operation("redrive", "Have failed messages tried again")} {
		cmds = append(cmds, api.Command(v))
	}
	return cmds
}

// timeoutFlag is the flag of the field timeout: --timeout is that of the command's own requests.
const timeoutFlag = "timeout-of-post"

// snake is the field or parameter that a flag such as --rate-limit sets.
func snake(flag string) string {
	if flag == timeoutFlag {
		return "timeout"
	}
	return strings.ReplaceAll(flag, "-", "_")
}

// page reads a page of a list.
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

// nameOf is the name of a receiver or sender, or the ID of an operation.
func nameOf(item json.RawMessage) (string, error) {
	var v struct{ Name, ID string }
	err := json.Unmarshal(item, &v)
	return v.Name + v.ID, err
}

// nouns are the commands that administer one.
var nouns = []remote.Noun{
	{Name: "receivers", Short: "Show and configure receivers", Verbs: []remote.Verb{
		{
			Use: "ls", Short: "List the receivers", Path: "/v1/receivers",
			Columns: []string{"name", "post_endpoint", ">rate_limit", ">window_size", "order", "paused", "state.disabled", "state.breaker", ">state.backlog"},
		},
		{Use: "show RECEIVER", Short: "Show a receiver, with its breaker, window and backlog", Path: words["RECEIVER"].Item},
		{
			Use: "put RECEIVER", Short: "Create or change a receiver", Method: http.MethodPut, Path: words["RECEIVER"].Item,
			Long: `Create or change a receiver. A setting that neither --file nor a flag gives has the
relay's default, except secrets: those of the receiver stay. Secrets come by --file,
since other users of the machine can see a command line.`,
			Example: `  jetpull relay receivers put ci --post-endpoint http://127.0.0.1:9090/hook --rate-limit 200 --window-size 10
  jetpull relay receivers put ci --file ci.json --paused`,
			Fields: func(fields *pflag.FlagSet) {
				fields.String("post-endpoint", "", "`URL` that messages are POSTed to")
				fields.String("status-endpoint", "", "`URL` with {source_id} and {message_id} that returns the result of a message")
				fields.Int("rate-limit", 0, "most POSTs in any window of --window-size; 0 for no limit")
				fields.Float64("window-size", 1, "`SECONDS` of a window")
				fields.Float64("retry-after", 5, "`SECONDS` between attempts")
				fields.Int("max-retries", 5, "attempts after the first")
				fields.Float64(timeoutFlag, 30, "`SECONDS` that a POST may take")
				fields.String("order", "none", "none, source or receiver")
				fields.String("unknown-outcome", "at_least_once", "at_least_once or at_most_once")
				fields.Float64("ttl", 0, "`SECONDS` that a message may take to its response; 0 for no limit")
				fields.Bool("paused", false, "send nothing")
			},
		},
		{Use: "rm RECEIVER", Short: "Remove a receiver; what waits for it fails", Method: http.MethodDelete, Path: words["RECEIVER"].Item},
	}},
	{Name: "senders", Short: "Show and configure senders", Verbs: []remote.Verb{
		{Use: "ls", Short: "List the senders", Path: "/v1/senders", Columns: []string{"name", "callback_endpoint", "sources", ">secret_count"}},
		{Use: "show SENDER", Short: "Show a sender", Path: words["SENDER"].Item},
		{
			Use: "put SENDER", Short: "Create or change a sender", Method: http.MethodPut, Path: words["SENDER"].Item,
			Long: `Configure a sender. The token of a new one, and secrets, come by --file, since other
users of the machine can see a command line. A sender keeps its token and secrets
if the file has none. Without a callback endpoint the sender gets no callbacks.`,
			Example: `  jetpull relay senders put shop --file shop.json --sources shop/ --callback-endpoint http://127.0.0.1:9091/done
  echo '{"token": "'"$TOKEN"'"}' | jetpull relay senders put shop --file - --sources shop/`,
			Fields: func(fields *pflag.FlagSet) {
				fields.String("callback-endpoint", "none", "`URL` that gets the results of messages, or none")
				fields.StringArray("sources", nil, "`PREFIX` of the sender's sources, once for each; an empty one is all")
			},
			Run: putSender,
		},
		{Use: "rm SENDER", Short: "Remove a sender; no callback to it is made any more", Method: http.MethodDelete, Path: words["SENDER"].Item},
	}},
	{Name: "failed", Short: "Show and settle failed messages", Verbs: []remote.Verb{
		{
			Use: "ls", Short: "List failed messages, newest first", Path: "/v1/failed", Flags: filter,
			Columns: []string{">id", "time", "source_id", "message_id", "receiver", "stage", "reason", ">attempts", "error"},
		},
		operation("skip", "Take failed messages off the list; they stay FAILED"),
		operation("purge", "Take failed messages off the list and drop their payloads"),
	}},
	{Name: "operations", Short: "Show and cancel what the relay does with failed messages", Verbs: []remote.Verb{
		{
			Use: "ls", Short: "List operations, the last one first", Path: "/v1/operations",
			Columns: []string{"id", "verb", "state", ">matched", ">done", ">skipped", "by", "began"},
		},
		{Use: "status OPERATION", Short: "Show how far an operation is", Run: (*remote.Call).OperationStatus, Flags: remote.Follow},
		{Use: "cancel OPERATION", Short: "End an operation; what is done stays done", Method: http.MethodDelete, Path: words["OPERATION"].Item},
	}},
}

// putSender refuses a new sender without a token before the relay does: only the command knows how it takes one.
func putSender(c *remote.Call) error {
	body, err := c.Body()
	if err != nil {
		return err
	}
	if token, _ := body["token"].(string); token == "" {
		_, err := c.Get(c.Cmd.Context(), c.To(c.Path), nil)
		switch {
		case errors.Is(err, client.ErrNotFound):
			return cli.Usage(fmt.Errorf(`sender %q is new and needs a token of its own, which its requests carry: give {"token": "…"} in --file`, c.Names["SENDER"]))
		case err != nil:
			return err
		}
	}
	return c.RequestWith(body)
}

// filter adds the flags that choose failed messages.
func filter(flags *pflag.FlagSet) {
	flags.String("receiver", "", "only those for the receiver `NAME`")
	flags.String("source", "", "only those of the source `ID`")
	flags.String("stage", "", "only those that failed at `STAGE`, as failed ls shows it")
	flags.String("reason", "", "only those that failed for `REASON`, as failed ls shows it")
	cli.Past(flags, new(time.Time), "since", "only those that failed since")
}

// operation is the verb that has the relay do something with failed messages.
func operation(verb, short string) remote.Verb {
	return remote.Verb{
		Use: verb + " [ID...]", Short: short,
		Long: short + `.

Give their IDs, as failed ls shows them, or flags that choose them. The relay does
it: an interrupt ends this command and not the operation.`,
		Flags: func(flags *pflag.FlagSet) {
			filter(flags)
			flags.Bool("all", false, "all that failed")
			remote.Paced(flags, 0, "messages a second at most; 0 for no limit")
		},
		Run: func(c *remote.Call) error {
			all, err := c.Cmd.Flags().GetBool("all")
			if err != nil {
				return err
			}
			ids, body, chosen := slices.Compact(slices.Sorted(slices.Values(c.Args))), map[string]any{}, c.Given()
			filtered := all || len(chosen) > 0
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
			switch {
			case err == nil && matched < len(ids):
				return fmt.Errorf("%d of %s not found on the list of failed messages, which failed ls shows", len(ids)-matched, progress.Plural(len(ids), "ID"))
			case err == nil && matched == 0:
				return c.Exists()
			}
			return err
		},
	}
}
