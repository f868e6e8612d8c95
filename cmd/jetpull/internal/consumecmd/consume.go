// Package consumecmd implements jetpull consume.
package consumecmd

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os/exec"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/client"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/consumecmd/perform"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/pulling"
	"github.com/jetpull/jetpull/internal/crash"
)

type consume struct {
	*client.Globals
	pulling.Flags
	count                              int           // messages after which the run ends; 0: no limit
	idle, drain                        time.Duration // 0: the run does not end when idle; running commands end at once
	concurrency, prefetch, maxAttempts int
	inFlight, maxCrashes               int
	worker                             bool
	retryDelays                        []time.Duration
	deadLetter, named                  string
	key                                func(*jetpull.Msg) string // the key of --ordered-by; nil: no order
	argv                               []string
}

// maxHeld is the maximum number of messages that the library holds.
const maxHeld = 1792

// New returns the command consume.
func New(g *client.Globals) *cobra.Command {
	f := &consume{Globals: g}
	cmd := &cobra.Command{
		Use:   "consume STREAM CONSUMER [flags] [-- COMMAND [ARGUMENT...]]",
		Short: "Handle messages: print them, or run a command for each",
		Long: `consume handles messages until it is interrupted, or until --count or --idle
ends it. It prints and acknowledges each message. With a COMMAND after --, it runs
the command for each message, with the payload on standard input.

The command's exit code settles the message:
  0          acknowledged
  65         (EX_DATAERR) terminated: never delivered again
  any other  the command runs again, after --retry-delays and up to --max-attempts

With --worker, the command is started once for each of --concurrency, reads messages and
writes outcomes as lines of JSON: see
https://github.com/jetpull/jetpull/blob/main/docs/command.md#workers-in-any-language.
With --json, consume prints the outcome of each message as a line of JSON, and the
output of commands goes to standard error.

The command's environment has JETPULL_STREAM, JETPULL_CONSUMER, JETPULL_DOMAIN,
JETPULL_SUBJECT, JETPULL_STREAM_SEQ, JETPULL_CONSUMER_SEQ, JETPULL_DELIVERED,
JETPULL_PENDING, JETPULL_TIME, JETPULL_HEADERS (all headers, as JSON), and
JETPULL_HEADER_NAME for the first value of each header. A message stays in
progress for as long as its command runs. A second interrupt kills running commands.

consume refuses a consumer with ack policy all: create it with the explicit policy.`,
		Example: `  jetpull consume ORDERS worker
  jetpull consume ORDERS worker --create 'orders.>' --embedded ./data --embedded-port 4222
  jetpull consume ORDERS worker --concurrency 8 -- ./ship.sh
  jetpull consume ORDERS worker --worker -- node worker.js
  jetpull consume ORDERS worker --max-crashes 3 --dead-letter dead.orders -- ./ship.sh
  jetpull consume ORDERS worker --named shipping -- ./ship.sh
  jetpull consume ORDERS worker --idle 2s --json > backlog.jsonl`,
		Args: func(cmd *cobra.Command, args []string) error {
			if at := cmd.ArgsLenAtDash(); at >= 0 {
				args, f.argv = args[:at], args[at:]
				if len(f.argv) == 0 {
					return errors.New("after -- there is no command to run")
				}
			}
			return cli.Arguments(cmd, args)
		},
		RunE: f.execute,
	}
	f.register(cmd)
	return cmd
}

func (f *consume) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.IntVarP(&f.count, "count", "n", 0, "end after `N` messages; 0 for never")
	cli.Duration(flags, &f.idle, "idle", 0, 0, "end when no message has arrived for this `DURATION`, such as 10s; 0 for never")
	cli.Int(flags, &f.concurrency, "concurrency", 1, 1, maxHeld, "handle `N` messages at a time")
	flags.Func("ordered-by", "keep order among messages with the same `KEY`: subject, or header:NAME", f.orderBy)
	cli.Int(flags, &f.prefetch, "prefetch", 0, 1, maxHeld, "hold at most `N` messages, including those in progress; adapts by default")
	flags.DurationSliceVar(&f.retryDelays, "retry-delays", nil, "`DELAYS` before later attempts; for a command 1s,5s,30s, or the consumer's BackOff")
	cli.Int(flags, &f.maxAttempts, "max-attempts", 0, 1, math.MaxInt, "give up a message after `N` attempts; the default is the consumer's MaxDeliver")
	cli.Int(flags, &f.maxCrashes, "max-crashes", 0, 1, math.MaxInt, "give up a message that has ended `N` processes, of consume or --worker")
	flags.StringVar(&f.deadLetter, "dead-letter", "", "`SUBJECT` for copies of messages that --max-attempts or --max-crashes gives up")
	flags.StringVar(&f.named, "named", "", "answer jetpull ps and jetpull cancel, with this `NAME` of letters, digits, - and _")
	cli.Duration(flags, &f.drain, "drain-timeout", 30*time.Second, 0,
		"how long running commands may continue when consume ends; with 0 they are ended at once")
	flags.BoolVar(&f.worker, "worker", false, "start the command once, or --concurrency of it, and have each handle many messages")
	cli.Int(flags, &f.inFlight, "in-flight", 64, 1, maxHeld, "let a --worker have `N` messages at a time; 1 for slow work, or to keep order")
	cli.Range(flags, "count", &f.count, 0, math.MaxInt32)
	cli.Checked(flags, "retry-delays", func() error {
		for _, d := range f.retryDelays {
			if d < 0 || d > cli.MaxLong {
				return fmt.Errorf("--retry-delays %v is not in 0s..%v", d, cli.MaxLong)
			}
		}
		return nil
	})
	cli.Subject(flags, "dead-letter", &f.deadLetter, false)
	f.Flags.Register(cmd)
}

// check returns an error for flags that exclude each other.
func (f *consume) check(cmd *cobra.Command) error {
	if f.count > 0 {
		f.concurrency = min(f.concurrency, f.count)
	}
	switch {
	case (f.Raw || f.Null) && len(f.argv) > 0:
		return cli.Usage(errors.New("--raw and --print0 are for messages that are printed, not for a command"))
	case f.worker && len(f.argv) == 0:
		return cli.Usage(errors.New("--worker needs a command after --"))
	case !f.worker && cmd.Flags().Changed("in-flight"):
		return cli.Usage(fmt.Errorf("--in-flight %d needs --worker", f.inFlight))
	case f.handlers() > maxHeld:
		return cli.Usage(fmt.Errorf("--concurrency %d times --in-flight %d is more than %d messages", f.concurrency, f.inFlight, maxHeld))
	case f.prefetch > 0 && f.prefetch < f.handlers():
		of := ""
		if f.worker {
			of = fmt.Sprintf(" times --in-flight %d", f.inFlight)
		}
		return cli.Usage(fmt.Errorf("--prefetch %d is less than --concurrency %d%s: messages being handled count too", f.prefetch, f.concurrency, of))
	case f.deadLetter != "" && f.maxAttempts == 0 && f.maxCrashes == 0:
		return cli.Usage(errors.New("--dead-letter needs --max-attempts or --max-crashes, which say when a message is given up"))
	}
	if len(f.argv) > 0 {
		if _, err := exec.LookPath(f.argv[0]); err != nil {
			return cli.Usage(fmt.Errorf("the command cannot be run: %w", err))
		}
	}
	return nil
}

// handlers returns the number of messages that are handled at a time.
func (f *consume) handlers() int {
	if f.worker {
		return f.concurrency * f.inFlight
	}
	return f.concurrency
}

// orderBy parses the value of --ordered-by.
func (f *consume) orderBy(by string) error {
	switch name, isHeader := strings.CutPrefix(by, "header:"); {
	case by == "": // no order
	case by == "subject":
		f.key = (*jetpull.Msg).Subject
	case isHeader && name != "":
		f.key = func(m *jetpull.Msg) string { return m.Headers().Get(name) }
	default:
		return errors.New("it is neither subject nor header:NAME")
	}
	return nil
}

// options returns the options of the library for the flags. Flags that are not given have no option, so the library's defaults apply, except
// where other defaults are better for a run.
func (f *consume) options(cmd *cobra.Command, cfg *jetstream.ConsumerConfig) []jetpull.ConsumeOption {
	flags := cmd.Flags()
	opts := append(cli.Given(flags, map[string]jetpull.ConsumeOption{
		"prefetch":     jetpull.Prefetch(f.prefetch),
		"retry-delays": jetpull.RetryDelays(f.retryDelays...),
		"max-attempts": jetpull.MaxAttempts(f.maxAttempts),
		"dead-letter":  jetpull.DeadLetter(f.deadLetter),
		"named":        jetpull.Named(f.named),
	}), jetpull.Concurrency(f.handlers()), jetpull.DrainTimeout(f.drain))
	if len(f.argv) > 0 && len(cfg.BackOff) == 0 && cfg.AckPolicy != jetstream.AckNonePolicy && f.maxAttempts != 1 && !flags.Changed("retry-delays") {
		// Three steps, as --help documents. The library's default doubles from 1 s to 1 min.
		opts = append(opts, jetpull.RetryDelays(time.Second, 5*time.Second, 30*time.Second))
	}
	if f.count > 0 {
		opts = append(opts, jetpull.StopAfter(f.count))
	}
	if f.key != nil {
		opts = append(opts, jetpull.OrderedBy(f.key))
	}
	return opts
}

// crashBucket stores for crashMemory which messages were begun and not ended.
const (
	crashBucket = "jetpull-crashes"
	crashMemory = 24 * time.Hour
)

// crashes returns the counter of --max-crashes, or nil without it. It creates a missing bucket with the stream's number of replicas.
func (f *consume) crashes(ctx context.Context, l *client.Link, stream string) (*crash.Counter, error) {
	if f.maxCrashes == 0 {
		return nil, nil
	}
	c := &crash.Counter{Most: f.maxCrashes}
	err := l.Within(ctx, func(ctx context.Context) (err error) {
		if c.Marks, err = l.JS.KeyValue(ctx, crashBucket); !errors.Is(err, jetstream.ErrBucketNotFound) {
			return err
		}
		s, err := l.JS.Stream(ctx, stream)
		if err != nil {
			return err
		}
		c.Marks, err = l.JS.CreateKeyValue(ctx, jetstream.KeyValueConfig{
			Bucket: crashBucket, Description: "messages that jetpull consume --max-crashes has begun and not ended", TTL: crashMemory,
			Replicas: s.CachedInfo().Config.Replicas,
		})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("--max-crashes %d: bucket %q: %w", f.maxCrashes, crashBucket, err)
	}
	return c, nil
}

func (f *consume) execute(cmd *cobra.Command, args []string) (err error) {
	if err := f.check(cmd); err != nil {
		return err
	}
	ctx, asJSON := cmd.Context(), cli.JSON(cmd)
	p, err := f.Open(cmd, f.Globals, args)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Close(ctx)) }()
	info, err := p.Sub.Info(ctx)
	if err != nil {
		return err
	}
	opts := f.options(cmd, &info.Config)
	crashes, err := f.crashes(ctx, p.Link, args[0])
	if err != nil {
		return err
	}
	if crashes != nil {
		opts = append(opts, jetpull.MaxCrashes(f.maxCrashes, crashes.Marks))
	}
	r := f.newRun(cmd, info.NumPending)
	out, errOut := pulling.NewPrinter(r.bar.Over(cmd.OutOrStdout())), pulling.NewPrinter(r.errOut)
	start := func() {}
	switch {
	case len(f.argv) == 0:
		pulling.BoundPipe(cmd.OutOrStdout())
		out.JSON, out.Raw, out.Null = asJSON, f.Raw, f.Null
		r.handle = func(_ context.Context, m *jetpull.Msg) error { return out.Print(m) }
	case f.worker:
		w := &perform.Worker{Argv: f.argv, InFlight: f.inFlight, Drain: f.drain, Stderr: errOut, Log: cli.Log(errOut, asJSON), Crashes: crashes}
		r.handle, start = w.Handle, func() { w.Start(f.concurrency) }
		defer w.Close()
	case asJSON:
		r.handle = (&perform.Command{Argv: f.argv, Stdout: errOut, Stderr: errOut}).Handle
	default:
		r.handle = (&perform.Command{Argv: f.argv, Stdout: out, Stderr: errOut}).Handle
	}
	if asJSON && len(f.argv) > 0 {
		results := &perform.Results{Out: out, Exits: !f.worker, AckNone: info.Config.AckPolicy == jetstream.AckNonePolicy}
		r.handle = results.Of(r.handle)
		opts = append(opts, jetpull.OnEvent(results.Event))
		defer func() { err = errors.Join(err, p.Sub.Close(context.WithoutCancel(ctx)), results.Rest()) }() // Close waits for the last event
	}
	opts = append(opts, jetpull.OnStart(func() {
		start()
		if !f.Quiet {
			p.Listens(r.errOut, asJSON)
		}
	}))
	return p.Explain(ctx, r.messages(ctx, p.Sub, opts))
}
