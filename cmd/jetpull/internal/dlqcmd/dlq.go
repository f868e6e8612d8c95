// Package dlqcmd is the commands on dead letters.
package dlqcmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/client"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/deadletters"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/names"
	"github.com/jetpull/jetpull/internal/progress"
)

// New returns the command dlq.
func New(g *client.Globals) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "dlq",
		Short: "Look at dead letters, requeue and purge them",
		Long: `dlq works with the dead letters that consume --dead-letter, or Consume with
DeadLetter, has put into a stream. STREAM is the stream that stores them.`,
		Example: `  jetpull dlq ls DEAD --since 24h --reason 'timeout|refused'
  jetpull dlq show DEAD 7
  jetpull dlq requeue DEAD --subject 'orders.>' --dry-run
  jetpull dlq purge DEAD 7 8 9`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newDLQList(g), newDLQShow(g), newDLQRequeue(g), newDLQPurge(g))
	return cmd
}

// dlqFlags say which dead letters are meant.
type dlqFlags struct {
	reason, subject string
	since           time.Duration
	all, dryRun     bool
}

func (f *dlqFlags) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.reason, "reason", "", "those whose reason matches the regular `EXPRESSION`")
	flags.StringVar(&f.subject, "subject", "", "those of messages published to `SUBJECT`, wildcards allowed")
	flags.DurationVar(&f.since, "since", 0, "those stored in the last `LONG`")
}

// registerChange adds the flags of a command that changes something.
func (f *dlqFlags) registerChange(cmd *cobra.Command) {
	f.register(cmd)
	cmd.Flags().BoolVar(&f.all, "all", false, "all of them; needed where neither sequences nor a filter are given")
	cmd.Flags().BoolVar(&f.dryRun, "dry-run", false, "say what would be done, and do nothing")
}

// filters tells whether a flag leaves dead letters out.
func (f *dlqFlags) filters() bool { return f.reason != "" || f.subject != "" || f.since != 0 }

// filter is what flags and arguments, of which the first is the stream, say.
func (f *dlqFlags) filter(args []string) (*deadletters.Filter, error) {
	out := &deadletters.Filter{Subject: f.subject}
	for _, arg := range args[1:] {
		n, err := strconv.ParseUint(arg, 10, 64)
		if err != nil || n == 0 {
			return nil, cli.Usage(fmt.Errorf("%q is not the sequence of a dead letter", arg))
		}
		out.Sequences = append(out.Sequences, n)
	}
	if f.subject != "" && !names.IsSubject(f.subject, true) {
		return nil, cli.Usage(fmt.Errorf("--subject %q is not a subject", f.subject))
	}
	if f.since < 0 {
		return nil, cli.Usage(fmt.Errorf("--since %v is less than 0", f.since))
	}
	if f.since > 0 {
		out.Since = time.Now().Add(-f.since)
	}
	if f.reason != "" {
		var err error
		if out.Reason, err = regexp.Compile(f.reason); err != nil {
			return nil, cli.Usage(fmt.Errorf("--reason: %w", err))
		}
	}
	return out, nil
}

// streamAndSequences wants a stream, and sequences behind it where there may be some.
func streamAndSequences(sequences bool) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 || !sequences && len(args) > 1 {
			return cli.Usage(fmt.Errorf("%s wants the name of the stream of dead letters, not %d arguments %q", cmd.CommandPath(), len(args), args))
		}
		return names.Check("stream", args[0])
	}
}

// dlq is a stream of dead letters that is open.
type dlq struct {
	link   *client.Link
	stream jetstream.Stream
}

func openDLQ(cmd *cobra.Command, g *client.Globals, name string) (*dlq, error) {
	l, err := g.Target.OpenExisting(cmd.Context(), "dlq", cmd.ErrOrStderr())
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), l.Timeout)
	defer cancel()
	s, err := l.JS.Stream(ctx, name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		err = fmt.Errorf("no such stream %q: %w", name, err)
	} else if err != nil {
		err = fmt.Errorf("stream %q: %w", name, err)
	}
	if err != nil {
		l.Close()
		return nil, err
	}
	return &dlq{l, s}, nil
}

// each does something with each dead letter that is meant.
func (f *dlqFlags) each(cmd *cobra.Command, g *client.Globals, args []string, do func(*deadletters.Letter) error) error {
	filter, err := f.filter(args)
	if err != nil {
		return err
	}
	d, err := openDLQ(cmd, g, args[0])
	if err != nil {
		return err
	}
	defer d.link.Close()
	return deadletters.Each(cmd.Context(), d.stream, filter, do)
}

func newDLQList(g *client.Globals) *cobra.Command {
	f := &dlqFlags{}
	cmd := &cobra.Command{
		Use:   "ls STREAM",
		Short: "List dead letters",
		Args:  streamAndSequences(false),
		RunE: func(cmd *cobra.Command, args []string) error {
			var rows [][]string
			err := f.each(cmd, g, args, func(l *deadletters.Letter) error {
				if g.JSON {
					l.Data, l.Headers = nil, nil
					return cli.WriteJSON(cmd.OutOrStdout(), l)
				}
				rows = append(rows, []string{
					strconv.FormatUint(l.Sequence, 10), l.Time.Local().Format(time.DateTime), progress.Readable(l.Subject),
					fmt.Sprintf("%s/%d", l.Stream, l.Origin), l.Consumer, strconv.Itoa(l.Attempts), progress.Readable(l.Reason),
				})
				return nil
			})
			if err != nil || g.JSON {
				return err
			}
			if len(rows) == 0 {
				text := fmt.Sprintf("stream %q has no dead letters", args[0])
				if f.filters() {
					text = fmt.Sprintf("no dead letter of stream %q is meant by the filter", args[0])
				}
				cli.Tell(cmd.ErrOrStderr(), "%s\n", text)
				return nil
			}
			return progress.Table(cmd.OutOrStdout(), []string{"seq", "time", "subject", "message", "consumer", "attempts", "reason"}, rows)
		},
	}
	f.register(cmd)
	return cmd
}

func newDLQShow(g *client.Globals) *cobra.Command {
	return &cobra.Command{
		Use:   "show STREAM SEQUENCE",
		Short: "Print one dead letter, with its headers and its payload",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 2 {
				return cli.Usage(fmt.Errorf("%s wants a stream and a sequence, not %d arguments %q", cmd.CommandPath(), len(args), args))
			}
			return names.Check("stream", args[0])
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			found := false
			err := (&dlqFlags{}).each(cmd, g, args, func(l *deadletters.Letter) error {
				found = true
				if g.JSON {
					return cli.WriteJSON(cmd.OutOrStdout(), l)
				}
				return printLetter(cmd.OutOrStdout(), l)
			})
			if err == nil && !found {
				err = fmt.Errorf(noLetter, args[0], args[1])
			}
			return err
		},
	}
}

// noLetter is the error of a sequence that is not that of a dead letter.
const noLetter = "stream %q has no dead letter %v"

func printLetter(out io.Writer, l *deadletters.Letter) error {
	b := fmt.Appendf(nil, "message   %d of stream %s, published to %s\ngiven up  %s by consumer %s, after %d attempts\nreason    %s\n",
		l.Origin, progress.Readable(l.Stream), progress.Readable(l.Subject), l.Time.Local().Format(time.DateTime), progress.Readable(l.Consumer), l.Attempts, progress.Readable(l.Reason))
	for _, name := range slices.Sorted(maps.Keys(l.Headers)) {
		for _, value := range l.Headers[name] {
			b = fmt.Appendf(b, "    %s: %s\n", progress.Readable(name), progress.Readable(value))
		}
	}
	if l.Gone {
		b = append(b, "the payload was gone from the stream\n"...)
	} else {
		b = fmt.Appendf(b, "%s\n", progress.Readable(string(l.Data)))
	}
	_, err := out.Write(b)
	return err
}

func newDLQRequeue(g *client.Globals) *cobra.Command {
	f := &dlqFlags{}
	to := ""
	cmd := &cobra.Command{
		Use:   "requeue STREAM [SEQUENCE...]",
		Short: "Publish messages of dead letters again, and delete the dead letters",
		Long: `requeue publishes the message of each dead letter that is meant to the subject that
it had, or to --to. The dead letter is deleted when a stream has confirmed that. The
message keeps its headers, and is new to its stream: consumers deliver it for the
first time.`,
		Args: streamAndSequences(true),
		RunE: func(cmd *cobra.Command, args []string) error {
			if to != "" && !names.IsSubject(to, false) {
				return cli.Usage(fmt.Errorf("--to %q is not a subject to publish to", to))
			}
			return runDLQ(cmd, g, f, args, "requeue", func(ctx context.Context, d *dlq, l *deadletters.Letter) error {
				return deadletters.Requeue(ctx, d.link.JS, d.stream, l, to)
			})
		},
	}
	f.registerChange(cmd)
	cmd.Flags().StringVar(&to, "to", "", "publish to `SUBJECT`, not to the one that each had")
	return cmd
}

func newDLQPurge(g *client.Globals) *cobra.Command {
	f := &dlqFlags{}
	cmd := &cobra.Command{
		Use:   "purge STREAM [SEQUENCE...]",
		Short: "Delete dead letters",
		Args:  streamAndSequences(true),
		RunE: func(cmd *cobra.Command, args []string) error {
			return runDLQ(cmd, g, f, args, "purge", func(ctx context.Context, d *dlq, l *deadletters.Letter) error {
				return deadletters.Delete(ctx, d.stream, l)
			})
		},
	}
	f.registerChange(cmd)
	return cmd
}

// dlqResult is what a command did, as --json prints it.
type dlqResult struct {
	Done   int  `json:"done"`
	Failed int  `json:"failed"`
	DryRun bool `json:"dry_run"`
}

// runDLQ does something to each dead letter that is meant. One that cannot be done is told, and the others go on.
func runDLQ(cmd *cobra.Command, g *client.Globals, f *dlqFlags, args []string, verb string, do func(context.Context, *dlq, *deadletters.Letter) error) error {
	filter, err := f.filter(args)
	if err != nil {
		return err
	}
	if len(args) == 1 && !f.all && !f.filters() {
		return cli.Usage(fmt.Errorf("%s which? Name sequences, give --reason, --subject or --since, or --all", verb))
	}
	d, err := openDLQ(cmd, g, args[0])
	if err != nil {
		return err
	}
	defer d.link.Close()
	var bar *progress.Bar
	if !g.Quiet && !g.JSON {
		bar = progress.NewOpen(cmd.ErrOrStderr(), verb, int64(d.stream.CachedInfo().State.Msgs))
	}
	result, missing := dlqResult{DryRun: f.dryRun}, map[uint64]bool{}
	for _, n := range filter.Sequences {
		missing[n] = true
	}
	err = deadletters.Each(cmd.Context(), d.stream, filter, func(l *deadletters.Letter) error {
		delete(missing, l.Sequence)
		if !f.dryRun {
			ctx, cancel := context.WithTimeout(cmd.Context(), d.link.Timeout)
			defer cancel()
			if err := do(ctx, d, l); err != nil {
				if cmd.Context().Err() != nil {
					return err
				}
				result.Failed++
				cli.Warn(bar.Over(cmd.ErrOrStderr()), g.JSON, cli.Plain(err))
				return nil
			}
		}
		result.Done++
		bar.Add(1)
		return nil
	})
	bar.Clear()
	if interrupted := cmd.Context().Err() != nil; interrupted {
		err = fmt.Errorf("%w: %s of %d dead letters was done", cli.ErrInterrupted, verb, result.Done)
	}
	if err == nil {
		err = errors.Join(result.err(), f.missing(args[0], missing))
		result.Failed += len(missing)
	}
	if g.JSON {
		return errors.Join(err, cli.WriteJSON(cmd.OutOrStdout(), result))
	}
	did, letters := verb+"d", "dead letters"
	if f.dryRun {
		did = "would " + verb
	}
	if result.Done == 1 {
		letters = "dead letter"
	}
	cli.Tell(cmd.OutOrStdout(), "%s %s %s\n", did, progress.Count(result.Done), letters)
	return err
}

// missing is the error of named sequences for which nothing was done.
func (f *dlqFlags) missing(stream string, sequences map[uint64]bool) error {
	text := noLetter
	if f.filters() {
		text += " that the filter fits"
	}
	var errs []error
	for _, n := range slices.Sorted(maps.Keys(sequences)) {
		errs = append(errs, fmt.Errorf(text, stream, n))
	}
	return errors.Join(errs...)
}

func (r dlqResult) err() error {
	if r.Failed == 0 {
		return nil
	}
	return errors.Join(cli.ErrFailed, fmt.Errorf("%d dead letters are left as they were", r.Failed))
}
