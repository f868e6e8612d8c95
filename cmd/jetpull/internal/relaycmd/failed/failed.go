// Package failed implements the commands that show and settle failed messages.
package failed

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/relaycmd/registry"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/remote"
	"github.com/jetpull/jetpull/internal/progress"
	"github.com/jetpull/jetpull/relay/client"
)

// filter chooses failed messages, by the fields that the relay has for it.
type filter map[string]string

func (f filter) register(cmd *cobra.Command) {
	for _, one := range [][2]string{
		{"receiver", "only those for the receiver `NAME`"},
		{"source", "only those of the source `ID`"},
		{"stage", "only those that failed at `STAGE`, as failed ls shows it"},
		{"reason", "only those that failed for `REASON`, as failed ls shows it"},
		{"since", "only those that failed since a `TIME` such as 2026-01-02T15:04:05Z, or 1h ago"},
	} {
		cmd.Flags().Func(one[0], one[1], func(text string) error {
			if text != "" {
				f[one[0]] = text
			}
			return nil
		})
	}
}

// known refuses a filter that means no message because the relay has no such receiver.
func (f filter) known(ctx context.Context, r *remote.Server) error {
	name := f["receiver"]
	if name == "" {
		return nil
	}
	_, err := r.Get(ctx, registry.ReceiverPath(name), nil)
	if errors.Is(err, client.ErrNotFound) {
		return fmt.Errorf("no such receiver %q; see what there is with: jetpull relay receivers ls", name)
	}
	return err
}

// item is a failed message on the list.
type item struct {
	ID       string    `json:"id"`
	Source   string    `json:"source_id"`
	Message  string    `json:"message_id"`
	Receiver string    `json:"receiver"`
	Stage    string    `json:"stage"`
	Reason   string    `json:"reason"`
	Error    string    `json:"error"`
	Time     time.Time `json:"time"`
	Attempts int       `json:"attempts"`
}

// New is jetpull relay failed.
func New(r *remote.Server) *cobra.Command {
	cmd := &cobra.Command{Use: "failed", Short: "Show and settle failed messages", Args: cobra.NoArgs, RunE: cli.Help}
	cmd.AddCommand(newList(r),
		NewOperation(r, "skip", "Take failed messages off the list; they stay FAILED"),
		NewOperation(r, "purge", "Take failed messages off the list and drop their payloads"))
	return cmd
}

// pageSize is how many failed messages one request lists.
const pageSize = 1000

func newList(r *remote.Server) *cobra.Command {
	f := filter{}
	cmd := &cobra.Command{Use: "ls", Short: "List failed messages, newest first", Args: cobra.NoArgs}
	f.register(cmd)
	limit := cmd.Flags().Int("limit", 100, "list so many at most; 0 for all")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if *limit < 0 {
			return cli.Usage(fmt.Errorf("--limit %d is below 0", *limit))
		}
		items, err := f.items(cmd.Context(), r, *limit)
		if err != nil {
			return err
		}
		if len(items) == 0 {
			if err := f.known(cmd.Context(), r); err != nil || *r.JSON {
				return err
			}
			text := "there are no failed messages"
			if len(f) > 0 {
				text = "no failed message is meant by the filter"
			}
			cli.Notice(cmd.ErrOrStderr(), "%s\n", text)
			return nil
		}
		header := []string{">id", "time", "source", "message", "receiver", "stage", "reason", ">attempts", "error"}
		return remote.List(r, cmd, items, header, (*item).row)
	}
	return cmd
}

// items asks for failed messages, a page at a time.
func (f filter) items(ctx context.Context, r *remote.Server, limit int) (items []json.RawMessage, err error) {
	q := url.Values{}
	for name, value := range f {
		q.Set(name, value)
	}
	for limit == 0 || len(items) < limit {
		page := pageSize
		if limit > 0 {
			page = min(page, limit-len(items))
		}
		q.Set("limit", strconv.Itoa(page))
		var answer struct {
			Items  []json.RawMessage
			Cursor string
		}
		if _, err := r.Get(ctx, "/v1/failed?"+q.Encode(), &answer); err != nil {
			return nil, err
		}
		items = append(items, answer.Items...)
		if answer.Cursor == "" {
			break
		}
		q.Set("cursor", answer.Cursor)
	}
	return items, nil
}

func (i *item) row() []string {
	at, attempts := i.Time.Local().Format(time.DateTime), strconv.Itoa(i.Attempts)
	return []string{i.ID, at, i.Source, i.Message, i.Receiver, i.Stage, i.Reason, attempts, i.Error}
}

// status is a redrive, skip or purge as the relay shows it.
type status struct {
	ID      string `json:"id"`
	Verb    string `json:"verb"`
	State   string `json:"state"`
	Matched int    `json:"matched"`
	Done    int    `json:"done"`
}

func (s *status) count() string {
	return progress.Count(s.Done) + " of " + progress.Count(s.Matched) + " messages"
}

// operation is a command that begins, follows or ends one.
type operation struct {
	*remote.Server
	verb                string
	filter              filter
	all, dryRun, detach bool
	rate                float64
	follow, cancel      string
}

// NewOperation is jetpull relay redrive, failed skip or failed purge.
func NewOperation(r *remote.Server, verb, short string) *cobra.Command {
	o := &operation{Server: r, verb: verb, filter: filter{}}
	cmd := &cobra.Command{
		Use:   verb + " [ID...]",
		Short: short,
		Long: short + `.

Give their IDs, as failed ls shows them, or flags that choose them. The relay does
it: an interrupt ends this command and not the operation. --follow shows an
operation that runs, --cancel ends one; what it has done by then stays done.`,
		Args: cobra.ArbitraryArgs,
		RunE: o.run,
	}
	o.filter.register(cmd)
	flags := cmd.Flags()
	flags.BoolVar(&o.all, "all", false, "all that failed")
	flags.BoolVar(&o.dryRun, "dry-run", false, "say how many there are, and do nothing")
	flags.Float64Var(&o.rate, "rate", 0, "messages a second at most; 0 for no limit")
	flags.BoolVar(&o.detach, "detach", false, "do not wait for the end")
	flags.StringVar(&o.follow, "follow", "", "show the operation with this `ID`")
	flags.StringVar(&o.cancel, "cancel", "", "end the operation with this `ID`")
	return cmd
}

func operationPath(id string) string { return "/v1/operations/" + client.PathEscape(id) }

func (o *operation) run(cmd *cobra.Command, ids []string) error {
	filtered := o.all || len(o.filter) > 0
	if o.follow != "" || o.cancel != "" {
		if len(ids) > 0 || filtered || o.dryRun || o.detach || o.follow != "" && o.cancel != "" {
			return cli.Usage(errors.New("--follow and --cancel are each of an operation that there is: choose no messages, and give neither --dry-run nor --detach"))
		}
		method := http.MethodGet
		if o.cancel != "" {
			method = http.MethodDelete
		}
		_, err := o.begin(cmd, method, operationPath(o.follow+o.cancel), nil)
		return err
	}
	slices.Sort(ids)
	ids = slices.Compact(ids)
	body := map[string]any{"dry_run": o.dryRun, "rate": o.rate}
	switch {
	case len(ids) == 0 && !filtered:
		return cli.Usage(errors.New("give IDs of failed messages, flags that choose some, or --all"))
	case len(ids) > 0 && filtered:
		return cli.Usage(errors.New("give either IDs or flags that choose messages"))
	case filtered:
		body["filter"] = o.filter
	default:
		body["ids"] = ids
	}
	matched, err := o.begin(cmd, http.MethodPost, "/v1/failed:"+o.verb, body)
	if err == nil && matched < len(ids) {
		err = fmt.Errorf("%d of %d IDs are not on the list of failed messages, which failed ls shows", len(ids)-matched, len(ids))
	}
	return err
}

// begin makes a request that is answered with an operation, follows it to its end, and returns how many messages it is for.
func (o *operation) begin(cmd *cobra.Command, method, path string, body any) (matched int, err error) {
	var s status
	answer, _, err := o.Ask(cmd.Context(), remote.Request{Method: method, Path: path, Body: body}, &s)
	if err == nil && s.Matched == 0 && method == http.MethodPost {
		err = o.filter.known(cmd.Context(), o.Server)
	}
	if err != nil {
		return 0, err
	}
	if o.dryRun {
		return s.Matched, o.Print(cmd, answer, progress.Count(s.Matched)+" messages\n")
	}
	if s.State == "running" && !o.detach {
		this := cmd.CommandPath()
		if answer, err = o.Follow(cmd, remote.Operation{
			Verb: o.verb, Path: operationPath(s.ID), Follow: this + " --follow " + s.ID, Cancel: this + " --cancel " + s.ID, Matched: s.Matched,
			Done: func() (int, bool) { return s.Done, s.State == "running" },
		}, &s); err != nil {
			return 0, err
		}
	}
	return s.Matched, o.Print(cmd, answer, fmt.Sprintf("%s %s: %s, %s\n", s.Verb, s.ID, s.State, s.count()))
}
