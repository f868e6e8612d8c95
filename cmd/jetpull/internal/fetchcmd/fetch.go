// Package fetchcmd implements jetpull fetch.
package fetchcmd

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/client"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/pulling"
)

type fetch struct {
	*client.Globals
	pulling.Flags
	count        int
	wait         time.Duration
	noWait, fill bool
	settle       string
}

// New returns the command fetch.
func New(g *client.Globals) *cobra.Command {
	f := &fetch{Globals: g}
	cmd := &cobra.Command{
		Use:   "fetch STREAM CONSUMER",
		Short: "Fetch messages once, print and acknowledge them",
		Long: `fetch gets up to --count messages with one pull, prints them, and then settles
them.

It returns the available messages. If there are none, it waits for the first one, up
to --wait. With --fill it waits for all --count messages, up to --wait. With --no-wait
it never waits. It exits with 4 if no message, or with --fill fewer messages than
--count, arrived in time, and with 3 if --no-wait finds no message.`,
		Example: `  jetpull fetch ORDERS worker --count 10
  jetpull fetch ORDERS worker --settle nak --json | jq .data`,
		RunE: f.run,
	}
	flags := cmd.Flags()
	flags.IntVarP(&f.count, "count", "n", 1, "get `N` messages at most")
	flags.DurationVarP(&f.wait, "wait", "w", 5*time.Second, "how long to wait for the first message, or with --fill for all messages")
	flags.BoolVar(&f.noWait, "no-wait", false, "get only messages that are available now")
	flags.BoolVar(&f.fill, "fill", false, "wait until all --count messages have arrived")
	cli.OneOf(flags, &f.settle, "settle", "ack", "reply to each printed message: ack, nak, term or none", "ack", "nak", "term", "none")
	cli.Range(flags, "count", &f.count, 1, math.MaxInt32)
	cli.Range(flags, "wait", &f.wait, time.Millisecond, cli.MaxLong)
	f.Flags.Register(cmd)
	cli.Exclusive(cmd, "wait", "no-wait")
	cli.Exclusive(cmd, "fill", "no-wait")
	return cmd
}

// settlers settle a message, by the values of --settle. For ack there is none, because all messages are acknowledged together, with confirmation.
var settlers = map[string]func(*jetpull.Msg) error{
	"ack": nil, "nak": (*jetpull.Msg).Nak, "term": (*jetpull.Msg).Term, "none": func(*jetpull.Msg) error { return nil },
}

func (f *fetch) run(cmd *cobra.Command, args []string) (err error) {
	ctx := cmd.Context()
	p, err := f.Open(cmd, f.Globals, args)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Close(ctx)) }()
	wait := []jetpull.FetchOption{jetpull.MaxWait(f.wait)}
	switch {
	case f.noWait:
		wait[0] = jetpull.NoWait()
	case f.fill:
		wait = append(wait, jetpull.FillBatch())
	}
	msgs, err := p.Sub.Fetch(ctx, f.count, wait...)
	if ctx.Err() != nil && err != nil {
		return cli.ErrInterrupted
	}
	if err != nil {
		return p.Explain(ctx, err)
	}
	pulling.BoundPipe(cmd.OutOrStdout())
	printer := pulling.NewPrinter(cmd.OutOrStdout())
	printer.JSON, printer.Raw, printer.Null = f.JSON, f.Raw, f.Null
	for i, m := range msgs {
		if err := printer.Print(m); err != nil {
			return errors.Join(err, f.settleAll(ctx, p, msgs[:i]), each(msgs[i:], (*jetpull.Msg).Nak))
		}
	}
	if err := f.settleAll(ctx, p, msgs); err != nil {
		return err
	}
	if f.fill && len(msgs) < f.count {
		return fmt.Errorf("%w: %d of %d came within %v", cli.ErrShort, len(msgs), f.count, f.wait)
	}
	return nil
}

// settleAll settles the printed messages as --settle specifies. When it returns nil, the server has confirmed acknowledgements, so that exit
// code 0 means done.
func (f *fetch) settleAll(ctx context.Context, p *pulling.Pull, msgs []*jetpull.Msg) error {
	if settle := settlers[f.settle]; settle != nil {
		return each(msgs, settle)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.Timeout)
	defer cancel()
	info, err := p.Sub.Info(ctx)
	if err != nil || info.Config.AckPolicy == jetstream.AckNonePolicy {
		return err
	}
	return jetpull.ConfirmAcks(ctx, msgs...)
}

func each(msgs []*jetpull.Msg, do func(*jetpull.Msg) error) error {
	var errs []error
	for _, m := range msgs {
		errs = append(errs, do(m))
	}
	return errors.Join(errs...)
}
