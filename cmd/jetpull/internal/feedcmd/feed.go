// Package feedcmd is jetpull feed: a watcher, and the commands that show and operate its tables.
package feedcmd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
	"github.com/jetpull/jetpull/feed"
)

const help = `Run a watcher of the feed: it leases partitions and posts their items to a handler,
gate by gate, until a signal stops it. Several watchers may run on one database.

The handler gets an item's bytes, with the headers Feed-Item, Feed-Partition,
Feed-Gate, Feed-Attempt and Idempotency-Key, and answers with JSON:
{"done": true}, or {"gate": 1} to go on at another gate, with "data" to replace
the item's. Any status but 2xx is a failed attempt.

The subcommands add items, show what there is, and operate what has failed.`

// flags are the flags of a watcher.
type flags struct {
	handler, health, secret, nats      string
	concurrency, partitions, retries   int
	lease, pollMin, pollMax, backoff   time.Duration
	requeue, drain, timeout            time.Duration
	autoClose, manualCheckpoint, steal bool
}

// target is what all commands of the feed have.
type target struct {
	db   string
	json bool
}

// New makes the command jetpull feed.
func New() *cobra.Command {
	t, f := &target{}, &flags{}
	cmd := &cobra.Command{
		Use:   "feed",
		Short: "Work off partitions of items on a database, gate by gate",
		Long:  help,
		Example: `  seq 500 | jetpull feed add resumes --seal
  jetpull feed --handler http://127.0.0.1:8080/item --auto-close
  jetpull feed --db postgres://feed@127.0.0.1/feed --handler http://127.0.0.1:8080/item`,
		Args: cli.UsageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return run(cmd, t, f) },
	}
	cmd.PersistentFlags().StringVar(&t.db, "db", "sqlite:feed.db", "`DSN` of the database: sqlite:FILE, postgres://… or sqlserver://…")
	cmd.PersistentFlags().BoolVar(&t.json, "json", false, "print JSON, an object a line")
	fs := cmd.Flags()
	fs.StringVar(&f.handler, "handler", "", "`URL` that items are posted to")
	fs.StringVar(&f.health, "health", "", "`URL` that answers GET with 2xx while the handler can work; none unless given")
	fs.StringVar(&f.secret, "secret", "", "sign requests with `SECRET`, as Standard Webhooks describes")
	fs.StringVar(&f.nats, "nats", "", "`URL` of a NATS server for wake-ups; none unless given")
	fs.IntVar(&f.concurrency, "concurrency", 64, "items begun and not yet saved, at most")
	fs.DurationVar(&f.lease, "lease", 30*time.Second, "how long a partition stays with a watcher that died")
	fs.DurationVar(&f.pollMin, "poll-min", 100*time.Millisecond, "how often the database is asked while there is work")
	fs.DurationVar(&f.pollMax, "poll-max", 5*time.Second, "how often it is asked when there is none")
	fs.IntVar(&f.partitions, "max-partitions", 1000, "leases held, at most")
	fs.IntVar(&f.retries, "max-retries", 5, "attempts after the first; -1: for ever")
	fs.DurationVar(&f.backoff, "backoff", time.Second, "delay after the first failed attempt; it doubles up to a minute")
	fs.DurationVar(&f.requeue, "requeue", time.Second, "delay of an item that stays at its gate")
	fs.DurationVar(&f.drain, "drain-timeout", 30*time.Second, "how long requests may go on after a signal")
	fs.DurationVar(&f.timeout, "timeout", time.Minute, "how long a request may take")
	fs.BoolVar(&f.autoClose, "auto-close", false, "close sealed partitions after their last item")
	fs.BoolVar(&f.manualCheckpoint, "manual-checkpoint", false, "leave gates to jetpull feed advance")
	fs.BoolVar(&f.steal, "steal", false, "ask other watchers for partitions until each has a fair share")
	for _, sub := range subcommands(t) {
		sub.Args = cli.UsageArgs(sub.Args)
		cmd.AddCommand(sub)
	}
	return cmd
}

// with runs f on the opened database.
func (t *target) with(ctx context.Context, f func(s *feed.Store) error) (err error) {
	s, err := feed.Open(ctx, t.db)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	return f(s)
}

func run(cmd *cobra.Command, t *target, f *flags) (err error) {
	if f.handler == "" {
		return cli.Usage(errors.New("--handler is missing: give the URL that items are posted to"))
	}
	httpOptions := []feed.HTTPOption{feed.Timeout(f.timeout)}
	if f.health != "" {
		httpOptions = append(httpOptions, feed.Health(f.health))
	}
	if f.secret != "" {
		httpOptions = append(httpOptions, feed.Secret(f.secret))
	}
	p, err := feed.NewHTTPProcessor(f.handler, httpOptions...)
	if err != nil {
		return cli.Usage(err)
	}
	log := slog.New(slog.NewJSONHandler(cmd.ErrOrStderr(), nil))
	opts := f.options(log)
	if f.nats != "" {
		// A server that is down when this starts is waited for: it only brings wake-ups.
		nc, err := nats.Connect(f.nats, nats.RetryOnFailedConnect(true), nats.MaxReconnects(-1), nats.Name("jetpull feed"))
		if err != nil {
			return fmt.Errorf("--nats: %w", err)
		}
		defer nc.Close()
		opts = append(opts, feed.Wakeups(nc))
	}
	return t.with(cmd.Context(), func(s *feed.Store) error {
		log.Info("feed: watching", "handler", f.handler)
		err := feed.NewWatcher(s, p, opts...).Run(cmd.Context())
		if errors.Is(err, feed.ErrInvalid) {
			return cli.Usage(err)
		}
		return err
	})
}

func (f *flags) options(log *slog.Logger) []feed.WatcherOption {
	first := f.backoff
	opts := []feed.WatcherOption{
		feed.Concurrency(f.concurrency), feed.Lease(f.lease), feed.Poll(f.pollMin, f.pollMax), feed.MaxPartitions(f.partitions),
		feed.MaxRetries(f.retries), feed.Requeue(f.requeue), feed.DrainTimeout(f.drain), feed.Logger(log),
		feed.Backoff(func(attempt int) time.Duration { return min(first<<min(attempt-1, 16), max(first, time.Minute)) }),
	}
	if f.autoClose {
		opts = append(opts, feed.AutoClose())
	}
	if f.manualCheckpoint {
		opts = append(opts, feed.ManualCheckpoint())
	}
	if f.steal {
		opts = append(opts, feed.Steal())
	}
	return opts
}
