package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/client"
)

type fetchFlags struct {
	count    int
	wait     time.Duration
	noWait   bool
	fill     bool
	raw      bool
	maxBytes int
	settle   string
	group    groupFlags
	create   createFlags
}

func newFetchCommand(g *client.Globals) *cobra.Command {
	f := &fetchFlags{}
	cmd := &cobra.Command{
		Use:   "fetch STREAM CONSUMER",
		Short: "Take messages once, print and acknowledge them",
		Long: `fetch takes up to --count messages in one pull, prints them, and settles them
after they are printed.

It returns with what is there, and waits for the first message only if nothing
is. With --fill it waits for all of them, up to --wait, and exits with 4 if fewer
came; with --no-wait it never waits. Nothing within --wait is 4 too; 3 is only for
--no-wait.`,
		Example: `  jetpull fetch ORDERS worker --count 10
  jetpull fetch ORDERS worker --settle nak --json | jq .data`,
		Args: client.StreamAndConsumer,
		RunE: func(cmd *cobra.Command, args []string) error { return runFetch(cmd, g, f, args[0], args[1]) },
	}
	flags := cmd.Flags()
	flags.IntVarP(&f.count, "count", "n", 1, "take `N` messages at most")
	flags.DurationVarP(&f.wait, "wait", "w", 5*time.Second, "how long to wait where nothing is there, or for all messages with --fill")
	flags.BoolVar(&f.noWait, "no-wait", false, "take what is there now")
	flags.BoolVar(&f.fill, "fill", false, "wait until all --count messages are there")
	flags.IntVar(&f.maxBytes, "max-bytes", 0, "take no more than `BYTES`, overhead included")
	flags.StringVar(&f.settle, "settle", "ack", "what to do with a message that is printed: ack, nak, term or none")
	flags.BoolVar(&f.raw, "raw", false, "print the payloads alone, a line each")
	f.group.register(flags)
	f.create.register(flags)
	return cmd
}

// options are the flags as options of the library.
func (f *fetchFlags) options(cmd *cobra.Command) []jetpull.Option {
	var opts []jetpull.Option
	if f.noWait {
		opts = append(opts, jetpull.NoWait())
	} else {
		opts = append(opts, jetpull.MaxWait(f.wait))
	}
	if f.fill {
		opts = append(opts, jetpull.FillBatch())
	}
	if cmd.Flags().Changed("max-bytes") {
		opts = append(opts, jetpull.MaxBytes(f.maxBytes))
	}
	return opts
}

func (f *fetchFlags) check(cmd *cobra.Command) error {
	switch f.settle {
	case "ack", "nak", "term", "none":
	default:
		return cli.Usage(fmt.Errorf("--settle %q is none of ack, nak, term and none", f.settle))
	}
	flags := cmd.Flags()
	switch {
	case f.noWait && flags.Changed("wait"):
		return cli.Usage(errors.New("--wait and --no-wait exclude each other"))
	case f.fill && f.noWait:
		return cli.Usage(errors.New("--fill and --no-wait exclude each other: one waits for all messages, the other never waits"))
	case f.raw && flags.Changed("json"):
		return cli.Usage(errors.New("--raw and --json exclude each other"))
	}
	if flags.Changed("max-bytes") {
		if err := client.InRange("--max-bytes", f.maxBytes, 1, client.MaxBatch); err != nil {
			return err
		}
	}
	return cmp.Or(
		client.InRange("--count", f.count, 1, client.MaxBatch),
		client.Lasting("--wait", f.wait, client.MinWait),
		f.group.check(flags),
		f.create.check(flags),
	)
}

func runFetch(cmd *cobra.Command, g *client.Globals, f *fetchFlags, stream, consumer string) (err error) {
	if err := f.check(cmd); err != nil {
		return err
	}
	ctx := cmd.Context()
	l, err := g.Target.Open(cmd.Context(), "fetch", cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	defer l.Close()
	if err := f.create.create(ctx, l, stream, consumer, f.group.group, g.Warner(cmd.ErrOrStderr())); err != nil {
		return err
	}
	sub, err := subscribe(ctx, l, stream, consumer, f.group.options(cmd.Flags())...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeSubscription(ctx, sub, g.Target.Timeout)) }()
	msgs, err := f.take(cmd, g, sub)
	if ctx.Err() != nil && err != nil {
		return cli.ErrInterrupted
	}
	if err != nil {
		return err
	}
	p := &printer{format: formatOf(g, f.raw), out: cmd.OutOrStdout()}
	for i, m := range msgs {
		if err := p.print(m); err != nil {
			return errors.Join(err, f.settleAll(ctx, g, sub, msgs[:i]), handBack(msgs[i:]))
		}
	}
	if err := f.settleAll(ctx, g, sub, msgs); err != nil {
		return err
	}
	if f.fill && len(msgs) < f.count {
		return fmt.Errorf("%w: %d of %d came within %v", cli.ErrShort, len(msgs), f.count, f.wait)
	}
	return nil
}

// settleAll does with the printed messages what the user asked for. The server
// has confirmed it when settleAll returns nil, so that exit code 0 means done.
func (f *fetchFlags) settleAll(ctx context.Context, g *client.Globals, sub *jetpull.Subscription, msgs []*jetpull.Msg) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), g.Target.Timeout)
	defer cancel()
	if f.settle == "ack" {
		info, err := sub.Info(ctx)
		if err != nil {
			return err
		}
		if info.Config.AckPolicy == jetstream.AckNonePolicy {
			return nil
		}
		return jetpull.ConfirmAcks(ctx, msgs...)
	}
	verb := map[string]func(*jetpull.Msg) error{
		"nak": (*jetpull.Msg).Nak, "term": (*jetpull.Msg).Term,
		"none": func(*jetpull.Msg) error { return nil },
	}[f.settle]
	for _, m := range msgs {
		if err := verb(m); err != nil {
			return err
		}
	}
	return nil
}

// handBack returns messages that were not printed to the server.
func handBack(msgs []*jetpull.Msg) error {
	var errs []error
	for _, m := range msgs {
		errs = append(errs, m.Nak())
	}
	return errors.Join(errs...)
}

// subscribe binds to the consumer within the time for a request.
func subscribe(ctx context.Context, l *client.Link, stream, consumer string, opts ...jetpull.Option) (*jetpull.Subscription, error) {
	ctx, cancel := context.WithTimeout(ctx, l.Timeout)
	defer cancel()
	return jetpull.Subscribe(ctx, l.JS, stream, consumer, opts...)
}

// closeSubscription hands back what was not used, even after an interruption.
func closeSubscription(ctx context.Context, sub *jetpull.Subscription, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	defer cancel()
	return sub.Close(ctx)
}

func formatOf(g *client.Globals, raw bool) format {
	switch {
	case g.JSON:
		return formatJSON
	case raw:
		return formatRaw
	}
	return formatText
}
