// Package dlqcmd implements jetpull dlq, the commands on dead letters.
package dlqcmd

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/client"
	"github.com/jetpull/jetpull/deadletters"
	"github.com/jetpull/jetpull/internal/requeue"
	"github.com/jetpull/jetpull/internal/service/progress"
	"github.com/jetpull/jetpull/internal/wire"
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

// dlq is a command on dead letters: its flags, and its connection while it runs.
type dlq struct {
	*client.Globals
	to          string
	all, dryRun bool
	rate        int

	link   *client.Link
	stream jetstream.Stream
	chosen filter
	rule   *requeue.Rule // nil: the command publishes nothing
}

// register adds the flags that select dead letters. If changes is true, it also adds the flags of a command that changes something.
func (d *dlq) register(cmd *cobra.Command, changes bool) {
	flags := cmd.Flags()
	flags.Func("reason", "only those whose reason matches the regular `EXPRESSION`", func(text string) (err error) {
		d.chosen.reason, err = regexp.Compile(text)
		return err
	})
	flags.StringVar(&d.chosen.subject, "subject", "", "only those of messages that were published to `SUBJECT`, wildcards allowed")
	cli.Past(flags, &d.chosen.since, "since", "only those stored since")
	cli.Subject(flags, "subject", &d.chosen.subject, true)
	if changes {
		flags.BoolVar(&d.all, "all", false, "all of them; required if neither a sequence nor a filter is given")
		flags.BoolVar(&d.dryRun, "dry-run", false, "print what would be done, and do nothing")
		cli.Int(flags, &d.rate, "rate", 0, 0, math.MaxInt32, "at most `N` a second; 0 for no limit")
	}
}

// filters reports whether a flag excludes dead letters.
func (d *dlq) filters() bool {
	return d.chosen.reason != nil || d.chosen.subject != "" || !d.chosen.since.IsZero()
}

// with parses the arguments, a stream of dead letters and sequences, and calls f with a connection to the stream.
func (d *dlq) with(cmd *cobra.Command, args []string, f func() error) (err error) {
	for _, arg := range args[1:] {
		n, err := strconv.ParseUint(arg, 10, 64)
		if err != nil || n == 0 {
			return cli.Usage(fmt.Errorf("%q is not the sequence of a dead letter", arg))
		}
		d.chosen.sequences = append(d.chosen.sequences, n)
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

func newList(g *client.Globals) *cobra.Command {
	d := &dlq{Globals: g}
	cmd := &cobra.Command{
		Use:   "ls STREAM",
		Short: "List dead letters",
		RunE: func(cmd *cobra.Command, args []string) error {
			columns := []string{">seq", "time", "subject", "stream", ">stream_seq", "consumer", ">attempts", "reason"}
			return d.with(cmd, args, func() error {
				return cli.ListOr(cmd, columns, d.letters(cmd.Context(), false), d.none())
			})
		},
	}
	d.register(cmd, false)
	return cmd
}

// none returns a text about a stream without dead letters, with advice: it may be the wrong stream.
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
				for l, err := range d.letters(cmd.Context(), true) {
					if err != nil {
						return err
					}
					return cli.Show(cmd, struct {
						*requeue.Letter
						cli.Payload
					}{l, cli.PayloadOf(l.Data)})
				}
				return fmt.Errorf(noLetter, args[0], args[1])
			})
		},
	}
}

// noLetter is the error of a sequence without a dead letter.
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
the message. After an interrupt, run the same command again for the rest.`,
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

// filter selects the dead letters that match all of its fields.
type filter struct {
	sequences []uint64       // empty: all
	reason    *regexp.Regexp // nil: any
	subject   string         // to which the message was published, may have wildcards; empty: any
	since     time.Time      // when the dead letter was stored; zero: ever
}

func (f *filter) fits(l *requeue.Letter) bool {
	return (len(f.sequences) == 0 || slices.Contains(f.sequences, l.Sequence)) && (f.reason == nil || f.reason.MatchString(l.Reason)) &&
		(f.subject == "" || wire.Matches(f.subject, l.Subject)) && !l.Time.Before(f.since)
}

func newCapture(g *client.Globals) *cobra.Command {
	var subject string
	var idle time.Duration
	cmd := &cobra.Command{
		Use:   "capture STREAM [ORIGIN...]",
		Short: "Store dead letters of messages that were delivered MaxDeliver times",
		Long: `capture makes STREAM keep the server's advisories of messages that were delivered
MaxDeliver times, of the streams ORIGIN, or of all. It creates STREAM if there is none.
Then it stores a dead letter for each advisory in STREAM, until it is interrupted or
--idle ends it. Several processes share the work. An advisory that does not fit its
consumer and its message is dropped, with a line in the log. Nothing is deleted.`,
		Example: `  jetpull dlq capture DEAD --dead-letter dead.orders
  jetpull dlq capture DEAD ORDERS --dead-letter dead.orders --idle 2s`,
		RunE: func(cmd *cobra.Command, args []string) error {
			link, err := g.OpenExisting(cmd)
			if err != nil {
				return err
			}
			defer link.Close()
			if err := keep(cmd, g, link, subject, args); err != nil {
				return err
			}
			cfg := deadletters.Config{Stream: args[0], Subject: subject, Idle: idle, Logger: cli.Log(cmd.ErrOrStderr(), cli.JSON(cmd))}
			return link.Explain(cmd.Context(), deadletters.Capture(cmd.Context(), link.JS, cfg))
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&subject, "dead-letter", "", "`SUBJECT` of the dead letters; a stream must have it")
	cli.Duration(flags, &idle, "idle", 0, 0, "end when no advisory was handled for this `DURATION`, such as 10s; 0 for never")
	cli.Subject(flags, "dead-letter", &subject, false)
	_ = cmd.MarkFlagRequired("dead-letter") // the flag exists
	return cmd
}

// keep makes the stream store the advisories, and prints what it changed.
func keep(cmd *cobra.Command, g *client.Globals, link *client.Link, subject string, args []string) error {
	ctx, stream, did := cmd.Context(), args[0], "created stream"
	added := append(deadletters.Subjects(args[1:]...), subject)
	existing, err := link.EnsureStream(ctx, jetstream.StreamConfig{Name: stream, Subjects: added})
	if err == nil && existing != nil {
		did = "added to stream"
		added, err = deadletters.Keep(ctx, link.JS, stream, args[1:]...)
	}
	switch {
	case err != nil:
		return link.Explain(ctx, err)
	case len(added) > 0 && !g.Quiet && !cli.JSON(cmd):
		cli.Notice(cmd.ErrOrStderr(), "%s %s: %s\n", did, stream, strings.Join(added, ", "))
	}
	return nil
}
