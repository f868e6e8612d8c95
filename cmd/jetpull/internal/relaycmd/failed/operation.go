package failed

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/relaycmd/remote"
	"github.com/jetpull/jetpull/internal/progress"
	"github.com/jetpull/jetpull/relay/client"
)

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
	*remote.Relay
	verb   string
	filter filter
	// stop has an interrupt end the operation too.
	all, dryRun, stop, detach bool
	rate                      float64
	follow, cancel            string
}

// NewOperation is jetpull relay redrive, failed skip or failed purge.
func NewOperation(r *remote.Relay, verb, short string) *cobra.Command {
	o := &operation{Relay: r, verb: verb, filter: filter{}}
	cmd := &cobra.Command{
		Use:   verb + " [ID...]",
		Short: short,
		Long: short + `.

Give their IDs, as failed ls shows them, or flags that choose them. The relay does
it: an interrupt ends this command and not the operation, unless
--cancel-on-interrupt is given. --follow shows an operation that runs, --cancel
ends one; what it has done by then stays done.`,
		Args: cobra.ArbitraryArgs,
		RunE: o.run,
	}
	o.filter.register(cmd)
	flags := cmd.Flags()
	flags.BoolVar(&o.all, "all", false, "all that failed")
	flags.BoolVar(&o.dryRun, "dry-run", false, "say how many there are, and do nothing")
	flags.Float64Var(&o.rate, "rate", 0, "messages a second at most; 0 for no limit")
	flags.BoolVar(&o.detach, "detach", false, "do not wait for the end")
	flags.BoolVar(&o.stop, "cancel-on-interrupt", false, "an interrupt ends the operation too")
	flags.StringVar(&o.follow, "follow", "", "show the operation with this `ID`")
	flags.StringVar(&o.cancel, "cancel", "", "end the operation with this `ID`")
	return cmd
}

func path(id string) string { return "/v1/operations/" + client.PathEscape(id) }

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
		_, err := o.begin(cmd, method, path(o.follow+o.cancel), nil)
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
	answer, err := o.Ask(cmd.Context(), 0, method, path, body, &s)
	if err == nil && s.Matched == 0 && method == http.MethodPost {
		err = o.filter.known(cmd.Context(), o.Relay)
	}
	if err != nil {
		return 0, err
	}
	if o.dryRun {
		return s.Matched, o.Print(cmd, answer, progress.Count(s.Matched)+" messages\n")
	}
	if s.State == "running" && !o.detach {
		if answer, err = o.followTo(cmd, &s); err != nil {
			return 0, err
		}
	}
	return s.Matched, o.Print(cmd, answer, fmt.Sprintf("%s %s: %s, %s\n", s.Verb, s.ID, s.State, s.count()))
}

// lookEvery is the time between two looks at an operation.
const lookEvery = 200 * time.Millisecond

// followTo shows how far an operation is, until its end. A relay that restarts continues it, so this does, too.
func (o *operation) followTo(cmd *cobra.Command, s *status) (json.RawMessage, error) {
	ctx := cmd.Context()
	bar := progress.New(cmd.ErrOrStderr(), o.verb, int64(s.Matched))
	bar.Add(s.Done)
	defer bar.Clear()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	answered := time.Now()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			bar.Clear()
			return nil, o.interrupted(cmd, s)
		}
		before := s.Done
		answer, err := o.Ask(ctx, 0, http.MethodGet, path(s.ID), nil, s)
		switch {
		case ctx.Err() != nil, errors.Is(err, client.ErrUnavailable) && time.Since(answered) < o.Timeout:
			continue
		case err != nil:
			return nil, fmt.Errorf("%w; the %s goes on when the relay does: %s --follow %s", err, o.verb, cmd.CommandPath(), s.ID)
		}
		answered = time.Now()
		bar.Add(s.Done - before)
		if s.State != "running" {
			return answer, nil
		}
	}
}

// interrupted says how an operation continues without this command, or ends it.
func (o *operation) interrupted(cmd *cobra.Command, s *status) error {
	if !o.stop {
		cli.Tell(cmd.ErrOrStderr(), "The %s goes on in the relay, with %s done.\n  %s --follow %[4]s   shows it\n  %[3]s --cancel %s   ends it\n",
			o.verb, s.count(), cmd.CommandPath(), s.ID)
		return cli.ErrInterrupted
	}
	answer, err := o.Ask(context.WithoutCancel(cmd.Context()), 0, http.MethodDelete, path(s.ID), nil, s)
	if err != nil {
		return fmt.Errorf("end the %s: %w", o.verb, err)
	}
	if *o.JSON {
		err = o.Print(cmd, answer, "")
	} else {
		cli.Tell(cmd.ErrOrStderr(), "The %s was ended, with %s done.\n", o.verb, s.count())
	}
	return errors.Join(err, cli.ErrInterrupted)
}
