// Package failed is the commands that show failed messages and settle them.
package failed

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/relaycmd/receivers"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/relaycmd/remote"
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
func (f filter) known(ctx context.Context, r *remote.Relay) error {
	name := f["receiver"]
	if name == "" {
		return nil
	}
	_, err := r.Ask(ctx, 0, http.MethodGet, receivers.Path(name), nil, nil)
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
func New(r *remote.Relay) *cobra.Command {
	cmd := &cobra.Command{Use: "failed", Short: "Show and settle failed messages", Args: cobra.NoArgs}
	cmd.AddCommand(newList(r),
		NewOperation(r, "skip", "Take failed messages off the list; they stay FAILED"),
		NewOperation(r, "purge", "Take failed messages off the list and drop their payloads"))
	return cmd
}

// pageSize is how many failed messages one request lists.
const pageSize = 1000

func newList(r *remote.Relay) *cobra.Command {
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
			cli.Tell(cmd.ErrOrStderr(), "%s\n", text)
			return nil
		}
		header := []string{">id", "time", "source", "message", "receiver", "stage", "reason", ">attempts", "error"}
		return remote.List(r, cmd, items, header, (*item).row)
	}
	return cmd
}

// items asks for failed messages, a page at a time.
func (f filter) items(ctx context.Context, r *remote.Relay, limit int) (items []json.RawMessage, err error) {
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
		if _, err := r.Ask(ctx, 0, http.MethodGet, "/v1/failed?"+q.Encode(), nil, &answer); err != nil {
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
