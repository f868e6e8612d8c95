package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os/exec"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/client"
)

type consumeFlags struct {
	count, concurrency, prefetch, maxAttempts int
	idle, drain                               time.Duration
	retryDelays                               []time.Duration
	deadLetter, orderedBy                     string
	raw                                       bool
	group                                     groupFlags
	create                                    createFlags
	argv                                      []string
}

func newConsumeCommand(g *client.Globals) *cobra.Command {
	f := &consumeFlags{}
	cmd := &cobra.Command{
		Use:   "consume STREAM CONSUMER [flags] [-- COMMAND [ARGUMENT...]]",
		Short: "Work messages off: print them, or run a command for each",
		Long: `consume works messages off until it is interrupted, or until --count or --idle
ends it. It prints each message and acknowledges it; or, after --, it runs a
command for each, with the payload on its standard input.

The command's exit code settles the message:
  0      acknowledged
  65     (EX_DATAERR) terminated: never delivered again
  other  handled again, after --retry-delays and up to --max-attempts; with
         --ordered-by in place, and JETPULL_DELIVERED does not grow

With --json standard output has a line for what came of each message, and what
commands print goes to standard error.

Its environment has JETPULL_STREAM, JETPULL_CONSUMER, JETPULL_DOMAIN,
JETPULL_SUBJECT, JETPULL_STREAM_SEQ, JETPULL_CONSUMER_SEQ, JETPULL_DELIVERED,
JETPULL_PENDING, JETPULL_TIME, JETPULL_HEADERS (all headers, as JSON), and
JETPULL_HEADER_NAME for the first value of each header. A message stays in
progress for as long as its command runs.

The first interrupt or SIGTERM ends the work in good order: messages that were
not started go back to the server at once, and running commands have
--drain-timeout to end. After that they get SIGTERM, and SIGKILL half a second
later, with all of their process group, and their messages go back too. A second
interrupt or SIGTERM kills them at once, and ends with 130.

A consumer with ack policy all is refused: create it with the explicit policy.

A run with --count may take a few messages more than it needs; these go back, with
their delivery counted.`,
		Example: `  jetpull consume ORDERS worker
  jetpull consume ORDERS worker --create 'orders.>' --embedded ./data --embedded-port 4222
  jetpull consume ORDERS worker --concurrency 8 -- ./ship.sh
  jetpull consume ORDERS worker --idle 2s --json > backlog.jsonl`,
		Args: func(cmd *cobra.Command, args []string) error {
			if at := cmd.ArgsLenAtDash(); at >= 0 {
				args, f.argv = args[:at], args[at:]
				if len(f.argv) == 0 {
					return cli.Usage(errors.New("after -- there is no command to run"))
				}
			}
			return client.StreamAndConsumer(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error { return runConsume(cmd, g, f, args[0], args[1]) },
	}
	flags := cmd.Flags()
	flags.IntVarP(&f.count, "count", "n", 0, "end after `N` messages; 0 for never")
	flags.DurationVar(&f.idle, "idle", 0, "end when nothing has come for this `LONG`; 0 for never")
	flags.IntVar(&f.concurrency, "concurrency", 1, "handle `N` messages at a time")
	flags.StringVar(&f.orderedBy, "ordered-by", "", "keep order among messages with the same `KEY`: subject, or header:NAME")
	flags.IntVar(&f.prefetch, "prefetch", 0, "hold `N` messages at most, those being handled included; by default it adapts")
	flags.DurationSliceVar(&f.retryDelays, "retry-delays", nil, "`DELAYS` before the second, third … attempt at a message that failed; for a command 1s,5s,30s, unless the consumer has a backoff")
	flags.Lookup("retry-delays").DefValue = "" // the text says it
	flags.IntVar(&f.maxAttempts, "max-attempts", 0, "give a message up after `N` attempts; by default there are as many as the consumer allows deliveries")
	flags.StringVar(&f.deadLetter, "dead-letter", "", "`SUBJECT` to publish messages to that are given up; needs --max-attempts, and a stream over the subject")
	flags.DurationVar(&f.drain, "drain-timeout", 30*time.Second, "how long running commands may take after the end; with 0 they are ended at once")
	flags.BoolVar(&f.raw, "raw", false, "print the payloads alone, a line each")
	f.group.register(flags)
	f.create.register(flags)
	return cmd
}

func (f *consumeFlags) check(flags *pflag.FlagSet, g *client.Globals) error {
	switch {
	case f.raw && g.JSON:
		return cli.Usage(errors.New("--raw and --json exclude each other"))
	case f.raw && len(f.argv) > 0:
		return cli.Usage(errors.New("--raw is for messages that are printed, not for a command"))
	}
	if err := f.checkNumbers(flags); err != nil {
		return err
	}
	if _, err := orderKey(f.orderedBy); err != nil {
		return err
	}
	if len(f.argv) > 0 {
		if _, err := exec.LookPath(f.argv[0]); err != nil {
			return cli.Usage(fmt.Errorf("the command cannot be run: %w", err))
		}
	}
	return nil
}

// checkNumbers refuses what is wrong whatever the consumer may be.
func (f *consumeFlags) checkNumbers(flags *pflag.FlagSet) error {
	if flags.Changed("prefetch") {
		if err := client.InRange("--prefetch", f.prefetch, 1, client.MaxHeld); err != nil {
			return err
		}
		if f.prefetch < f.workers() {
			return cli.Usage(fmt.Errorf("--prefetch %d is less than --concurrency %d: messages being handled count too", f.prefetch, f.concurrency))
		}
	}
	if flags.Changed("max-attempts") {
		if err := client.InRange("--max-attempts", f.maxAttempts, 1, math.MaxInt); err != nil {
			return err
		}
	}
	for _, d := range f.retryDelays {
		if err := client.Lasting("--retry-delays", d, 0); err != nil {
			return err
		}
	}
	if flags.Changed("dead-letter") {
		switch {
		case !client.IsSubject(f.deadLetter, false):
			return cli.Usage(fmt.Errorf("--dead-letter %q is not a subject to publish to", f.deadLetter))
		case f.maxAttempts == 0:
			return cli.Usage(errors.New("--dead-letter needs --max-attempts, which says when a message is given up"))
		}
	}
	return cmp.Or(
		client.InRange("--count", f.count, 0, math.MaxInt),
		client.Lasting("--idle", f.idle, 0),
		client.InRange("--concurrency", f.concurrency, 1, client.MaxHeld),
		client.Lasting("--drain-timeout", f.drain, 0),
		f.group.check(flags),
		f.create.check(flags),
	)
}

// orderKey is the key function that --ordered-by names, nil for none.
func orderKey(by string) (func(*jetpull.Msg) string, error) {
	if by == "" {
		return nil, nil
	}
	if by == "subject" {
		return (*jetpull.Msg).Subject, nil
	}
	if name, ok := strings.CutPrefix(by, "header:"); ok && name != "" {
		return func(m *jetpull.Msg) string { return m.Headers().Get(name) }, nil
	}
	return nil, cli.Usage(fmt.Errorf("--ordered-by %q is neither subject nor header:NAME", by))
}

// options are the flags as options of the library. Those that were not given are
// left out, so that its own defaults hold.
func (f *consumeFlags) options(cmd *cobra.Command) []jetpull.Option {
	opts := []jetpull.Option{jetpull.Concurrency(f.workers()), jetpull.DrainTimeout(f.drain)}
	if key, _ := orderKey(f.orderedBy); key != nil {
		opts = append(opts, jetpull.OrderedBy(key))
	}
	flags := cmd.Flags()
	for name, opt := range map[string]jetpull.Option{
		"prefetch":     jetpull.Prefetch(f.prefetch),
		"retry-delays": jetpull.RetryDelays(f.retryDelays...),
		"max-attempts": jetpull.MaxAttempts(f.maxAttempts),
		"dead-letter":  jetpull.DeadLetter(f.deadLetter),
	} {
		if flags.Changed(name) {
			opts = append(opts, opt)
		}
	}
	return opts
}

// workers is how many messages are handled at a time: never more than --count.
func (f *consumeFlags) workers() int {
	if f.count > 0 {
		return min(f.concurrency, f.count)
	}
	return f.concurrency
}

// fitting are the options that suit the run where the user gave none.
func (f *consumeFlags) fitting(cmd *cobra.Command, cfg *jetstream.ConsumerConfig) []jetpull.Option {
	var opts []jetpull.Option
	if len(f.argv) > 0 && len(cfg.BackOff) == 0 && cfg.AckPolicy != jetstream.AckNonePolicy && !cmd.Flags().Changed("retry-delays") {
		// Three steps, as --help says, where the library doubles from 1 s to 1 min.
		opts = append(opts, jetpull.RetryDelays(time.Second, 5*time.Second, 30*time.Second))
	}
	if f.count > 0 && !cmd.Flags().Changed("prefetch") {
		opts = append(opts, jetpull.Prefetch(f.boundedPrefetch(cfg.MaxDeliver)))
	}
	return opts
}

// boundedPrefetch is how many messages a run with --count holds at most. What
// it holds beyond the count goes back with its delivery counted, so it is little where
// deliveries are limited or where a command takes far longer than a pull.
func (f *consumeFlags) boundedPrefetch(maxDeliver int) int {
	least := max(1, f.workers())
	if maxDeliver > 0 || len(f.argv) > 0 {
		return least
	}
	return max(least, min(f.count, 100))
}

func runConsume(cmd *cobra.Command, g *client.Globals, f *consumeFlags, stream, consumer string) (err error) {
	if err := f.check(cmd.Flags(), g); err != nil {
		return err
	}
	l, err := g.Target.Open(cmd.Context(), "consume", cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	defer l.Close()
	if err := f.create.create(cmd.Context(), l, stream, consumer, f.group.group, g.Warner(cmd.ErrOrStderr())); err != nil {
		return err
	}
	sub, err := subscribe(cmd.Context(), l, stream, consumer, f.group.options(cmd.Flags())...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeSubscription(cmd.Context(), sub, g.Target.Timeout)) }()
	info, err := sub.Info(cmd.Context())
	if err != nil {
		return err
	}
	opts := append(f.options(cmd), f.fitting(cmd, &info.Config)...)
	w := newWork(cmd, g, f, info.NumPending)
	if l.Server != nil && !g.Quiet {
		opts = append(opts, jetpull.OnStart(func() { w.listens(l.Server.URL()) }))
	}
	return w.run(cmd.Context(), sub, opts)
}

// handler is what is done for each message.
func (f *consumeFlags) handler(cmd *cobra.Command, g *client.Globals, over func(io.Writer) io.Writer) func(context.Context, *jetpull.Msg) error {
	out, errOut := over(cmd.OutOrStdout()), over(cmd.ErrOrStderr())
	if len(f.argv) == 0 {
		p := &printer{format: formatOf(g, f.raw), out: out}
		return func(_ context.Context, m *jetpull.Msg) error { return p.print(m) }
	}
	c := &command{argv: f.argv, results: &printer{out: out}, json: g.JSON}
	c.stdout, c.stderr = &printer{out: out}, &printer{out: errOut}
	if g.JSON {
		c.stdout = c.stderr
	}
	return c.handle
}
