package relaycmd

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
	"github.com/jetpull/jetpull/internal/progress"
	"github.com/jetpull/jetpull/relay/client"
)

// filter chooses failed messages.
type filter struct {
	Receiver string `json:"receiver,omitempty"`
	Source   string `json:"source,omitempty"`
	Stage    string `json:"stage,omitempty"`
	Reason   string `json:"reason,omitempty"`
	Since    string `json:"since,omitempty"`
}

func (f *filter) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.Receiver, "receiver", "", "only those for the receiver `NAME`")
	flags.StringVar(&f.Source, "source", "", "only those of the source `ID`")
	flags.StringVar(&f.Stage, "stage", "", "only those that failed at `STAGE`, as failed ls shows it")
	flags.StringVar(&f.Reason, "reason", "", "only those that failed for `REASON`, as failed ls shows it")
	flags.StringVar(&f.Since, "since", "", "only those that failed since a `TIME` such as 2026-01-02T15:04:05Z, or 1h ago")
}

func (f *filter) query() url.Values {
	q := url.Values{}
	for name, value := range map[string]string{"receiver": f.Receiver, "source": f.Source, "stage": f.Stage, "reason": f.Reason, "since": f.Since} {
		if value != "" {
			q.Set(name, value)
		}
	}
	return q
}

// failedItem is a failed message on the list.
type failedItem struct {
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

// newFailedCommand is jetpull relay failed.
func newFailedCommand(t *target) *cobra.Command {
	cmd := &cobra.Command{Use: "failed", Short: "Show and settle failed messages", Args: cobra.NoArgs}
	cmd.AddCommand(newFailedListCommand(t),
		newOperationCommand(t, "skip", "Take failed messages off the list; they stay FAILED"),
		newOperationCommand(t, "purge", "Take failed messages off the list and drop their payloads"))
	return cmd
}

// pageSize is how many failed messages one request lists.
const pageSize = 1000

func newFailedListCommand(t *target) *cobra.Command {
	var f filter
	var limit int
	cmd := &cobra.Command{Use: "ls", Short: "List failed messages, newest first", Args: cobra.NoArgs}
	f.register(cmd)
	cmd.Flags().IntVar(&limit, "limit", 100, "list so many at most; 0 for all")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if limit < 0 {
			return cli.Usage(fmt.Errorf("--limit %d is below 0", limit))
		}
		var rows [][]string
		q, found := f.query(), false
		for count := 0; limit == 0 || count < limit; {
			page := pageSize
			if limit > 0 {
				page = min(page, limit-count)
			}
			q.Set("limit", strconv.Itoa(page))
			var answer struct {
				Items  []json.RawMessage `json:"items"`
				Cursor string            `json:"cursor"`
			}
			if err := t.call(cmd.Context(), 0, http.MethodGet, "/v1/failed?"+q.Encode(), nil, &answer); err != nil {
				return err
			}
			for _, raw := range answer.Items {
				var item failedItem
				if err := json.Unmarshal(raw, &item); err != nil {
					return fmt.Errorf("read the list of failed messages: %w", err)
				}
				if err := t.print(cmd.OutOrStdout(), raw, func() error { rows = append(rows, item.row()); return nil }); err != nil {
					return err
				}
			}
			count += len(answer.Items)
			found = found || count > 0
			if answer.Cursor == "" {
				break
			}
			q.Set("cursor", answer.Cursor)
		}
		if !found {
			if err := t.nothing(cmd.Context(), &f); err != nil {
				return err
			}
		}
		if *t.json {
			return nil
		}
		if !found {
			text := "there are no failed messages"
			if f != (filter{}) {
				text = "no failed message is meant by the filter"
			}
			cli.Tell(cmd.ErrOrStderr(), "%s\n", text)
			return nil
		}
		return progress.Table(cmd.OutOrStdout(), []string{">id", "time", "source", "message", "receiver", "stage", "reason", ">attempts", "error"}, rows)
	}
	return cmd
}

// nothing refuses a filter that means no message because the relay has no such receiver.
func (t *target) nothing(ctx context.Context, f *filter) error {
	if f.Receiver == "" {
		return nil
	}
	err := t.call(ctx, 0, http.MethodGet, receiverPath(f.Receiver), nil, nil)
	if errors.Is(err, client.ErrNotFound) {
		return fmt.Errorf("no such receiver %q; see what there is with: jetpull relay receivers ls", f.Receiver)
	}
	return err
}

func (i *failedItem) row() []string {
	return []string{i.ID, i.Time.Local().Format(time.DateTime), i.Source, i.Message, i.Receiver, i.Stage, i.Reason, strconv.Itoa(i.Attempts), i.Error}
}

// operation is a redrive, skip or purge.
type operation struct {
	ID      string `json:"id"`
	Verb    string `json:"verb"`
	State   string `json:"state"`
	Matched int    `json:"matched"`
	Done    int    `json:"done"`
}

// operationFlags are those of a command that begins one.
type operationFlags struct {
	filter
	all, dryRun, cancelled, detach bool
	rate                           float64
	follow, cancel                 string
}

// newOperationCommand is jetpull relay redrive, failed skip or failed purge.
func newOperationCommand(t *target, verb, short string) *cobra.Command {
	var f operationFlags
	cmd := &cobra.Command{
		Use:   verb + " [ID...]",
		Short: short,
		Long: short + `.

Give their IDs, as failed ls shows them, or flags that choose them. The relay does
it: an interrupt ends this command and not the operation, unless
--cancel-on-interrupt is given. --follow shows an operation that runs, --cancel
ends one; what it has done by then stays done.`,
		Args: cobra.ArbitraryArgs,
	}
	f.register(cmd)
	flags := cmd.Flags()
	flags.BoolVar(&f.all, "all", false, "all that failed")
	flags.BoolVar(&f.dryRun, "dry-run", false, "say how many there are, and do nothing")
	flags.Float64Var(&f.rate, "rate", 0, "messages a second at most; 0 for no limit")
	flags.BoolVar(&f.detach, "detach", false, "do not wait for the end")
	flags.BoolVar(&f.cancelled, "cancel-on-interrupt", false, "an interrupt ends the operation too")
	flags.StringVar(&f.follow, "follow", "", "show the operation with this `ID`")
	flags.StringVar(&f.cancel, "cancel", "", "end the operation with this `ID`")
	cmd.RunE = func(cmd *cobra.Command, ids []string) error { return t.operate(cmd, verb, ids, &f) }
	return cmd
}

func (t *target) operate(cmd *cobra.Command, verb string, ids []string, f *operationFlags) error {
	chosen := len(ids) > 0 || f.filter != filter{} || f.all
	if f.follow != "" || f.cancel != "" {
		if chosen || f.dryRun || f.detach || f.follow != "" && f.cancel != "" {
			return cli.Usage(errors.New("--follow and --cancel are each of an operation that there is: choose no messages, and give neither --dry-run nor --detach"))
		}
		method, id := http.MethodGet, f.follow
		if f.cancel != "" {
			method, id = http.MethodDelete, f.cancel
		}
		_, err := t.begun(cmd, verb, method, "/v1/operations/"+client.PathEscape(id), nil, f)
		return err
	}
	slices.Sort(ids)
	ids = slices.Compact(ids)
	body := map[string]any{"dry_run": f.dryRun, "rate": f.rate}
	switch {
	case !chosen:
		return cli.Usage(errors.New("give IDs of failed messages, flags that choose some, or --all"))
	case len(ids) > 0 && (f.all || f.filter != filter{}):
		return cli.Usage(errors.New("give either IDs or flags that choose messages"))
	case len(ids) > 0:
		body["ids"] = ids
	default:
		body["filter"] = f.filter
	}
	matched, err := t.begun(cmd, verb, http.MethodPost, "/v1/failed:"+verb, body, f)
	if err == nil && matched < len(ids) {
		err = fmt.Errorf("%d of %d IDs are not on the list of failed messages, which failed ls shows", len(ids)-matched, len(ids))
	}
	return err
}

// begun makes a request that is answered with an operation, follows it to its end, and returns how many messages it is for.
func (t *target) begun(cmd *cobra.Command, verb, method, path string, body any, f *operationFlags) (matched int, err error) {
	var o operation
	raw, err := t.fetch(cmd.Context(), 0, method, path, body, &o)
	if err != nil {
		return 0, err
	}
	if o.Matched == 0 && method == http.MethodPost {
		if err := t.nothing(cmd.Context(), &f.filter); err != nil {
			return 0, err
		}
	}
	if f.dryRun {
		return o.Matched, t.print(cmd.OutOrStdout(), raw, func() error {
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s messages\n", progress.Count(o.Matched))
			return err
		})
	}
	if o.State == "running" && !f.detach {
		if raw, err = t.followTo(cmd, verb, &o, f.cancelled); err != nil {
			return 0, err
		}
	}
	return o.Matched, t.print(cmd.OutOrStdout(), raw, func() error {
		_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s %s: %s, %s of %s messages\n", o.Verb, o.ID, o.State, progress.Count(o.Done), progress.Count(o.Matched))
		return err
	})
}

// lookEvery is the time between two looks at an operation.
const lookEvery = 200 * time.Millisecond

// followTo shows how far an operation is, until its end. A relay that restarts goes on with it, so this does, too.
func (t *target) followTo(cmd *cobra.Command, verb string, o *operation, cancelled bool) (json.RawMessage, error) {
	ctx, path := cmd.Context(), "/v1/operations/"+client.PathEscape(o.ID)
	bar := progress.New(cmd.ErrOrStderr(), verb, int64(o.Matched))
	bar.Add(o.Done)
	defer bar.Clear()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	answered := time.Now()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			bar.Clear()
			return t.interrupted(cmd, verb, path, o, cancelled)
		}
		before := o.Done
		raw, err := t.fetch(ctx, 0, http.MethodGet, path, nil, o)
		switch {
		case ctx.Err() != nil:
			continue
		case errors.Is(err, client.ErrUnavailable) && time.Since(answered) < t.timeout:
			continue
		case err != nil:
			return nil, fmt.Errorf("%w; the %s goes on when the relay does: %s --follow %s", err, verb, cmd.CommandPath(), o.ID)
		}
		answered = time.Now()
		bar.Add(o.Done - before)
		if o.State != "running" {
			return raw, nil
		}
	}
}

// interrupted says how an operation goes on without this command, or ends it.
func (t *target) interrupted(cmd *cobra.Command, verb, path string, o *operation, cancelled bool) (json.RawMessage, error) {
	if !cancelled {
		cli.Tell(cmd.ErrOrStderr(), "The %s goes on in the relay, with %s of %s messages done.\n  %s --follow %[5]s   shows it\n  %[4]s --cancel %s   ends it\n",
			verb, progress.Count(o.Done), progress.Count(o.Matched), cmd.CommandPath(), o.ID)
		return nil, cli.ErrInterrupted
	}
	raw, err := t.fetch(context.WithoutCancel(cmd.Context()), 0, http.MethodDelete, path, nil, o)
	if err != nil {
		return nil, fmt.Errorf("end the %s: %w", verb, err)
	}
	err = t.print(cmd.OutOrStdout(), raw, func() error {
		cli.Tell(cmd.ErrOrStderr(), "The %s was ended, with %s of %s messages done.\n", verb, progress.Count(o.Done), progress.Count(o.Matched))
		return nil
	})
	return nil, errors.Join(err, cli.ErrInterrupted)
}
