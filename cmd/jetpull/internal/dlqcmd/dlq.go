// Package dlqcmd implements jetpull dlq, the commands on dead letters.
package dlqcmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"

	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/client"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/deadletters"
	"github.com/jetpull/jetpull/internal/requeue"
	"github.com/jetpull/jetpull/internal/service/progress"
)

// New returns the command dlq.
func New(g *client.Globals) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "dlq",
		Short: "Show, requeue, purge and capture dead letters",
		Long: `dlq works with the dead letters that consume --dead-letter, or Consume with
DeadLetter, has put into a stream, and makes those of messages that were delivered
MaxDeliver times. STREAM is the stream that stores them.`,
		Example: `  jetpull dlq ls DEAD --since 24h --reason 'timeout|refused'
  jetpull dlq show DEAD 7
  jetpull dlq requeue DEAD --subject 'orders.>' --dry-run
  jetpull dlq purge DEAD 7 8 9`,
	}
	cmd.AddCommand(newList(g), newShow(g), newRequeue(g), newPurge(g), newCapture(g))
	return cmd
}

// dlq is a command on dead letters: flags that choose some, and what is open while it runs.
type dlq struct {
	*client.Globals
	reason, to  string
	all, dryRun bool
	rate        int

	link     *client.Link
	stream   jetstream.Stream
	chosen   deadletters.Filter
	requeuer *deadletters.Requeuer // nil: the command publishes nothing
}

// register adds the flags that choose dead letters and, for a command that changes something, those that it needs beside them.
func (d *dlq) register(cmd *cobra.Command, changes bool) {
	flags := cmd.Flags()
	flags.StringVar(&d.reason, "reason", "", "only those whose reason matches the regular `EXPRESSION`")
	flags.StringVar(&d.chosen.Subject, "subject", "", "only those of messages that were published to `SUBJECT`, wildcards allowed")
	cli.Past(flags, &d.chosen.Since, "since", "only those stored since")
	cli.Checked(flags, "reason", func() (err error) {
		if d.chosen.Reason, err = regexp.Compile(d.reason); err != nil {
			err = fmt.Errorf("--reason: %w", err)
		}
		return err
	})
	cli.Subject(flags, "subject", &d.chosen.Subject, true)
	if changes {
		flags.BoolVar(&d.all, "all", false, "all of them; required if neither a sequence nor a filter is given")
		flags.BoolVar(&d.dryRun, "dry-run", false, "print what would be done, and do nothing")
		cli.Int(flags, &d.rate, "rate", 0, 0, math.MaxInt32, "at most `N` a second; 0 for no limit")
	}
}

// filters reports whether a flag leaves dead letters out.
func (d *dlq) filters() bool {
	return d.chosen.Reason != nil || d.chosen.Subject != "" || !d.chosen.Since.IsZero()
}

// with reads the arguments, which are a stream of dead letters and sequences, and runs f with a connection to the stream.
func (d *dlq) with(cmd *cobra.Command, args []string, f func() error) (err error) {
	for _, arg := range args[1:] {
		n, err := strconv.ParseUint(arg, 10, 64)
		if err != nil || n == 0 {
			return cli.Usage(fmt.Errorf("%q is not the sequence of a dead letter", arg))
		}
		d.chosen.Sequences = append(d.chosen.Sequences, n)
	}
	if d.link, err = d.OpenExisting(cmd); err != nil {
		return err
	}
	defer d.link.Close()
	err = d.link.Within(cmd.Context(), func(ctx context.Context) (err error) {
		d.stream, err = d.link.JS.Stream(ctx, args[0])
		return err
	})
	if err != nil {
		return fmt.Errorf("stream %q: %w", args[0], err)
	}
	return d.link.Explain(cmd.Context(), f())
}

// letters are the dead letters that are chosen.
func (d *dlq) letters(cmd *cobra.Command) iter.Seq2[*deadletters.Letter, error] {
	return deadletters.All(cmd.Context(), d.link.JS, d.stream, &d.chosen)
}

func newList(g *client.Globals) *cobra.Command {
	d := &dlq{Globals: g}
	cmd := &cobra.Command{
		Use:   "ls STREAM",
		Short: "List dead letters",
		RunE: func(cmd *cobra.Command, args []string) error {
			d.chosen.Heads = true
			columns := []string{">seq", "time", "subject", "stream", ">stream_seq", "consumer", ">attempts", "reason"}
			return d.with(cmd, args, func() error { return cli.ListOr(cmd, g.JSON, columns, d.letters(cmd), d.none()) })
		},
	}
	d.register(cmd, false)
	return cmd
}

// none says where there are no dead letters, and what to check: the stream can be another one than that of the dead letters.
func (d *dlq) none() string {
	info := d.stream.CachedInfo()
	subjects := cmp.Or(strings.Join(info.Config.Subjects, ", "), "no subject")
	looked := fmt.Sprintf("stream %s, over %s, has %s, and no dead letter", info.Config.Name, subjects, progress.Plural(info.State.Msgs, "message"))
	if d.filters() {
		return looked + " that the filter fits; leave out --reason, --subject and --since to list all"
	}
	return looked + "; check that it stores the subject of consume --dead-letter, or see what there is with: jetpull streams ls"
}

func newShow(g *client.Globals) *cobra.Command {
	return &cobra.Command{
		Use:   "show STREAM SEQUENCE",
		Short: "Print one dead letter, with its headers and its payload",
		RunE: func(cmd *cobra.Command, args []string) error {
			d := &dlq{Globals: g}
			return d.with(cmd, args, func() error {
				for l, err := range d.letters(cmd) {
					if err != nil {
						return err
					}
					return cli.Show(cmd.OutOrStdout(), g.JSON, l)
				}
				return fmt.Errorf(noLetter, args[0], args[1])
			})
		},
	}
}

// noLetter is the error of a sequence that is not that of a dead letter.
const noLetter = "stream %q has no dead letter %v"

func newRequeue(g *client.Globals) *cobra.Command {
	d := &dlq{Globals: g}
	cmd := &cobra.Command{
		Use:   "requeue STREAM [SEQUENCE...]",
		Short: "Publish messages of dead letters again, and delete the dead letters",
		Long: `requeue publishes the messages of the selected dead letters, in order, to their
original subjects, or to --to, and states the subjects first. The stream that a dead
letter names as its origin must have the subject. Subjects that begin with $, and
inboxes, are refused. It deletes a dead letter when a stream has confirmed
the message. The message keeps its headers, but is new to the stream: consumers
deliver it for the first time. After an interrupt, run the same command again for the
rest. If a message was published and its dead letter not yet deleted, the message is
stored only once within the stream's duplicate window.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := requeue.Subject(d.to, ""); d.to != "" && err != nil {
				return cli.Usage(fmt.Errorf("--to: %w", err))
			}
			return d.change(cmd, args, true)
		},
	}
	d.register(cmd, true)
	cmd.Flags().StringVar(&d.to, "to", "", "publish to `SUBJECT` instead of the original subjects")
	return cmd
}

func newPurge(g *client.Globals) *cobra.Command {
	d := &dlq{Globals: g}
	cmd := &cobra.Command{
		Use:   "purge STREAM [SEQUENCE...]",
		Short: "Delete dead letters",
		RunE:  func(cmd *cobra.Command, args []string) error { return d.change(cmd, args, false) },
	}
	d.register(cmd, true)
	return cmd
}

// atOnce is how many dead letters are in work at a time.
const atOnce = 64

// change requeues each dead letter that is chosen, or deletes it. One for which that fails is reported, and the others go on, unless --to names a
// subject that no stream has: then all would fail.
func (d *dlq) change(cmd *cobra.Command, args []string, publishes bool) error {
	switch {
	case len(args) == 1 && !d.all && !d.filters():
		return cli.Usage(fmt.Errorf("%s which? Name sequences, give --reason, --subject or --since, or --all", cmd.Name()))
	case len(args) > 1 && d.all:
		return cli.Usage(fmt.Errorf("%s of %s, or of all? Give the sequences, or --all", cmd.Name(), strings.Join(args[1:], ", ")))
	}
	did, limit := cmd.Name()+"d", rate.NewLimiter(rate.Inf, 1)
	switch {
	case d.dryRun:
		did = "would " + cmd.Name()
	case d.rate > 0:
		limit.SetLimit(rate.Limit(d.rate))
	}
	return d.with(cmd, args, func() error {
		if publishes {
			d.requeuer = deadletters.NewRequeuer(d.link.JS, d.stream, d.to)
		}
		subjects, err := d.announce(cmd)
		if err != nil {
			return err
		}
		result, err := d.changeEach(cmd, limit)
		result.Subjects = subjects
		gone := ""
		if result.Gone > 0 {
			gone = fmt.Sprintf("; %s gone already", progress.Plural(result.Gone, "other"))
		}
		return errors.Join(err, cli.Answer(cmd, d.JSON, result, "%s %s%s\n", did, progress.Plural(result.Done, "dead letter"), gone))
	})
}

// begin begins the change of a dead letter, in the order of their sequences. Up to atOnce of them are finished at a time. With --dry-run it finds
// out whether the change would be refused.
func (d *dlq) begin(ctx context.Context, l *deadletters.Letter) (finish func(context.Context) error) {
	var err error
	switch {
	case d.requeuer != nil && !d.dryRun:
		return d.requeuer.Begin(ctx, l)
	case d.requeuer != nil:
		_, err = d.requeuer.Message(ctx, l)
	case !d.dryRun:
		return func(ctx context.Context) error { return deadletters.Delete(ctx, d.link.JS, d.stream, l) }
	}
	return func(context.Context) error { return err }
}

// announce states which subjects a requeue will publish to, before it publishes the first message: a dead letter can name any subject.
func (d *dlq) announce(cmd *cobra.Command) (map[string]int, error) {
	if d.requeuer == nil {
		return nil, nil
	}
	heads, tally := d.chosen, requeue.Tally{}
	heads.Heads = true
	for l, err := range deadletters.All(cmd.Context(), d.link.JS, d.stream, &heads) {
		if cmd.Context().Err() != nil {
			return nil, fmt.Errorf("%w: nothing was done", cli.ErrInterrupted)
		}
		if err != nil {
			return nil, err
		}
		_, err = d.requeuer.Message(cmd.Context(), l)
		if _, refused := errors.AsType[requeue.Refusal](err); err != nil && !refused {
			return nil, err
		}
		tally.Add(cmp.Or(d.to, l.Subject), err)
	}
	if !d.JSON && !d.Quiet {
		cli.Notice(cmd.ErrOrStderr(), "%s to %s\n", cmd.Name(), &tally)
	}
	return tally.Subjects, nil
}

func (d *dlq) changeEach(cmd *cobra.Command, limit *rate.Limiter) (result result, err error) {
	result.DryRun = d.dryRun
	missing := slices.Compact(slices.Sorted(slices.Values(d.chosen.Sequences)))
	bar := d.Bar(cmd, int64(d.stream.CachedInfo().State.Msgs), true)
	var mu sync.Mutex
	ended := func(err error) error {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case err == nil:
			result.Done++
			bar.Add(1)
		case errors.Is(err, jetstream.ErrMsgNotFound):
			result.Gone++
		case cmd.Context().Err() == nil:
			result.Failed++
			if d.to != "" && errors.Is(err, deadletters.ErrNoStream) {
				return err
			}
			cli.Warn(bar.Over(cmd.ErrOrStderr()), d.JSON, cli.Plain(err))
		}
		return nil
	}
	work, hopeful := errgroup.WithContext(cmd.Context()) // ends with the first error of ended
	work.SetLimit(atOnce)
	for l, unread := range d.letters(cmd) {
		if err = cmp.Or(unread, limit.Wait(hopeful)); err != nil {
			break
		}
		missing = slices.DeleteFunc(missing, func(n uint64) bool { return n == l.Sequence })
		finish := d.begin(cmd.Context(), l)
		work.Go(func() error {
			unconfirmed := fmt.Errorf("not confirmed within %v: %w", d.link.Timeout, context.DeadlineExceeded)
			ctx, cancel := context.WithTimeoutCause(cmd.Context(), d.link.Timeout, unconfirmed)
			defer cancel()
			return ended(d.link.Explain(cmd.Context(), finish(ctx)))
		})
	}
	err = cmp.Or(work.Wait(), err)
	bar.Clear()
	switch {
	case cmd.Context().Err() != nil:
		err = fmt.Errorf("%w: %s of %s was done", cli.ErrInterrupted, cmd.Name(), progress.Plural(result.Done, "dead letter"))
	case err == nil:
		if result.Failed > 0 {
			err = cli.Failed("%s could not be %sd", progress.Plural(result.Failed, "dead letter"), cmd.Name())
		}
		err = errors.Join(err, d.missing(missing))
		result.Failed += len(missing)
	}
	return result, err
}

// missing is the error of sequences that are not those of dead letters, or whose dead letters the filter does not fit.
func (d *dlq) missing(sequences []uint64) (err error) {
	text := noLetter
	if d.filters() {
		text += " that the filter fits"
	}
	for _, n := range sequences {
		err = errors.Join(err, fmt.Errorf(text, d.stream.CachedInfo().Config.Name, n))
	}
	return err
}

// result is how many dead letters were changed.
type result struct {
	Done     int            `json:"done"`
	Failed   int            `json:"failed"`
	Gone     int            `json:"gone,omitempty"` // that another process has deleted meanwhile
	Subjects map[string]int `json:"subjects,omitempty"`
	DryRun   bool           `json:"dry_run"`
}
