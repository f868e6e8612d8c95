// Package feedcmd implements jetpull feed: a watcher, and the commands that show and change its tables.
package feedcmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/consolecmd"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/pulling"
	"github.com/jetpull/jetpull/feed"
	"github.com/jetpull/jetpull/feed/feedmetrics"
	"github.com/jetpull/jetpull/internal/mask"
	"github.com/jetpull/jetpull/internal/service"
	"github.com/jetpull/jetpull/internal/service/httpserve"
)

const help = `Run a watcher of the feed. It leases partitions and processes their items, gate by
gate, until a signal stops it. Several watchers may share a database.

With --handler, the watcher POSTs each item to a URL. The answer is JSON: {"done": true},
or {"gate": 1} to continue at another gate. "data" replaces the item's data. Any status
except 2xx is a failed attempt.

With --exec, the watcher runs a shell command for each item, with the item on stdin
and FEED_ITEM, FEED_PARTITION, FEED_GATE, FEED_ATTEMPT and IDEMPOTENCY_KEY in the
environment. The command prints the same JSON, or nothing if the item is done. Any
exit code except 0 is a failed attempt. 65 (EX_DATAERR) is one without a retry.

With --publish, the watcher publishes each item to a JetStream subject on --nats, for
workers on other machines: see JetStreamHandler in package feed.

The subcommands add items, show partitions and items, and retry or skip failed items.`

type flags struct {
	handler, exec, publish           string
	health, secret, nats             string
	metrics, consoleToken            string
	level                            slog.Level
	console                          bool
	concurrency, partitions, retries int
	crashes                          int
	lease, pollMin, pollMax, backoff time.Duration
	requeue, drain, timeout          time.Duration
	limits                           limits
	partitionConcurrency             int
}

// New returns the command feed.
func New() *cobra.Command {
	t, f := &db{}, &flags{}
	cmd := &cobra.Command{
		Use:   "feed",
		Short: "Process partitions of items on a database, gate by gate",
		Long:  help,
		Example: `  seq 500 | jetpull feed add resumes --seal
  jetpull feed --exec ./classify.sh --auto-close
  jetpull feed --handler http://127.0.0.1:8080/item --auto-close
  jetpull feed --db postgres://feed@127.0.0.1/feed --handler http://127.0.0.1:8080/item`,
		RunE: func(cmd *cobra.Command, _ []string) error { return run(cmd, t, f) },
	}
	t.register(cmd)
	fs := cmd.Flags()
	fs.StringVar(&f.handler, "handler", "", "`URL` that items are posted to")
	fs.StringVar(&f.exec, "exec", "", "shell `COMMAND` that is run for each item")
	fs.StringVar(&f.publish, "publish", "", "JetStream `SUBJECT` that items are published to; needs --nats")
	fs.StringVar(&f.health, "health", "", "`URL` that answers GET with 2xx while the handler can work; none by default")
	fs.StringVar(&f.secret, "secret", "", "sign requests of --handler with `SECRET` as Standard Webhooks does: base64, with or without whsec_")
	fs.StringVar(&f.nats, "nats", "", "`URL` of a NATS server for wake-ups and --publish; none by default")
	cli.Int(fs, &f.concurrency, "concurrency", 64, 1, 100_000, "maximum number of items of this watcher that are in progress or not yet saved")
	fs.Func("limit", "`GATE=LIMIT` of all watchers together: 2=10 for 10 items at a time, 2=100/1s for 100 in any second, or 2=10,100/1s; repeatable",
		f.limits.add)
	cli.Int(fs, &f.partitionConcurrency, "partition-concurrency", 0, 0, math.MaxInt,
		"maximum number of items of one partition that are in progress or not yet saved; 0: as many as --concurrency allows")
	fs.DurationVar(&f.lease, "lease", 30*time.Second, "time after which another watcher takes over the partitions of one that crashed")
	cli.Duration(fs, &f.pollMin, "poll-min", 100*time.Millisecond, time.Millisecond, "interval between queries while there is work")
	cli.Duration(fs, &f.pollMax, "poll-max", 5*time.Second, time.Millisecond, "interval between queries while there is no work")
	cli.Int(fs, &f.partitions, "max-partitions", 1000, 1, math.MaxInt, "maximum number of partitions that this watcher leases")
	cli.Int(fs, &f.retries, "max-retries", 5, -1, math.MaxInt, "attempts after the first; 0: none, -1: no limit")
	cli.Int(fs, &f.crashes, "max-crashes", 0, 0, math.MaxInt, "fail an item whose process has ended this many times while it was handled; 0: no limit")
	cli.Duration(fs, &f.backoff, "backoff", time.Second, 0, "delay after the first failed attempt; it doubles with each, up to a minute; 0: none")
	cli.Duration(fs, &f.requeue, "requeue", time.Second, 0, "delay before the next attempt at an item that stays at its gate without a failure")
	cli.Duration(fs, &f.drain, "drain-timeout", 30*time.Second, 0, "time limit of running attempts after a signal")
	cli.Duration(fs, &f.timeout, "timeout", time.Minute, time.Millisecond, "time limit of an attempt")
	fs.StringVar(&f.metrics, "metrics", "", "`ADDRESS` of /metrics, /healthz and /readyz, such as 127.0.0.1:9090; none by default")
	fs.BoolVar(&f.console, "console", true, "serve the console at /console/ of --metrics")
	fs.StringVar(&f.consoleToken, "console-token", "", "`TOKEN` that the console asks for; without one it is served on loopback only")
	fs.TextVar(&f.level, "log-level", slog.LevelInfo, "minimum `LEVEL` of the log: debug, info, warn or error")
	fs.Bool("auto-close", false, "close sealed partitions after their last item")
	fs.Bool("manual-checkpoint", false, "do not open gates; use jetpull feed advance")
	fs.Bool("steal", false, "ask other watchers for partitions until each has a fair share")
	cli.Exclusive(cmd, "handler", "exec", "publish")
	cli.Range(fs, "lease", &f.lease, 100*time.Millisecond, 24*time.Hour)
	cmd.AddCommand(append(operations(t), newList(t), newShow(t), newWatch(t), newPs(t))...)
	return cmd
}

func run(cmd *cobra.Command, t *db, f *flags) (err error) {
	if err := f.check(cmd.Context()); err != nil {
		return cli.Usage(err)
	}
	errOut := pulling.NewPrinter(cmd.ErrOrStderr()) // shared by the log and all commands
	log := service.NewLog(errOut, f.level)
	opts := f.options(cmd.Flags(), log)
	var nc *nats.Conn
	if f.nats != "" {
		// If NATS only brings wake-ups, do not fail while the server is down.
		nc, err = nats.Connect(f.nats, nats.RetryOnFailedConnect(f.publish == ""), nats.MaxReconnects(-1), nats.Name("jetpull feed"))
		if err != nil {
			return fmt.Errorf("--nats %s: %w", mask.URL(f.nats), mask.Error(err, f.nats))
		}
		defer nc.Close()
		if !nc.IsConnected() {
			log.Warn("feed: no wake-ups until NATS answers; the database is asked every --poll-max", "nats", mask.URL(f.nats), "--poll-max", f.pollMax)
		}
		opts = append(opts, feed.Wakeups(nc))
	}
	p, err := f.processor(cmd, nc, errOut)
	if err != nil {
		return err
	}
	if c, ok := p.(io.Closer); ok {
		defer func() { err = errors.Join(err, c.Close()) }()
	}
	return t.with(cmd.Context(), func(s *feed.Store) error {
		w := feed.NewWatcher(s, p, opts...)
		if f.metrics == "" {
			return w.Run(cmd.Context())
		}
		return f.runServing(cmd.Context(), s, w, log)
	})
}

// check returns an error if flags are missing or exclude each other.
func (f *flags) check(ctx context.Context) error {
	switch {
	case f.handler+f.exec+f.publish == "":
		return errors.New("nothing would handle the items: give --handler URL, --exec COMMAND or --publish SUBJECT")
	case f.handler == "" && (f.health != "" || f.secret != ""):
		return errors.New("--health and --secret are for --handler")
	case f.publish != "" && f.nats == "":
		return errors.New("--publish needs --nats URL")
	case f.pollMax < f.pollMin:
		return fmt.Errorf("--poll-max %v is below --poll-min %v", f.pollMax, f.pollMin)
	}
	if err := checkProgram(ctx, f.exec); err != nil {
		return fmt.Errorf("--exec: the command cannot be run: %w", err)
	}
	return cmp.Or(cli.CheckURL("--handler", f.handler), cli.CheckURL("--health", f.health))
}

// processor returns the processor for the items. If it is an io.Closer, the caller must close it at the end.
func (f *flags) processor(cmd *cobra.Command, nc *nats.Conn, errOut io.Writer) (feed.Processor, error) {
	switch {
	case f.exec != "":
		return &shell{f.exec, f.timeout, errOut}, nil
	case f.publish != "":
		js, err := jetstream.New(nc)
		if err != nil {
			return nil, err
		}
		return feed.NewJetStreamProcessor(cmd.Context(), js, f.publish, feed.ReplyTimeout(f.timeout))
	}
	given := cli.Given(cmd.Flags(), map[string]feed.HTTPOption{"health": feed.Health(f.health), "secret": feed.Secret(f.secret)})
	return feed.NewHTTPProcessor(f.handler, append(given, feed.Timeout(f.timeout))...)
}

// doubling returns the delay after each attempt. It doubles from first up to a minute. If first is longer than a minute, it is constant.
func doubling(first time.Duration) func(attempt int) time.Duration {
	return func(attempt int) time.Duration { return max(first, min(first<<min(attempt-1, 16), time.Minute)) }
}

func (f *flags) options(fs *pflag.FlagSet, log *slog.Logger) []feed.WatcherOption {
	opts := append(cli.Given(fs, map[string]feed.WatcherOption{
		"auto-close": feed.AutoClose(), "manual-checkpoint": feed.ManualCheckpoint(), "steal": feed.Steal(),
	}),
		feed.Concurrency(f.concurrency), feed.Lease(f.lease), feed.Poll(f.pollMin, f.pollMax), feed.MaxPartitions(f.partitions),
		feed.MaxRetries(f.retries), feed.Requeue(f.requeue), feed.DrainTimeout(f.drain), feed.Logger(log),
		feed.Backoff(doubling(f.backoff)), feed.Limits(f.limits...), feed.PartitionConcurrency(cmp.Or(f.partitionConcurrency, f.concurrency)),
	)
	if f.crashes > 0 {
		opts = append(opts, feed.MaxCrashes(f.crashes))
	}
	return opts
}

type limits []feed.Limit

// add parses a value of the flag, which may be given for each gate: GATE=CONCURRENCY, GATE=RATE/PER, or both, separated by a comma. It rejects
// all values that a watcher would reject.
func (l *limits) add(text string) error {
	gate, rest, found := strings.Cut(text, "=")
	n, err := strconv.Atoi(gate)
	limit := feed.Limit{Gate: n}
	if err != nil || !found {
		return fmt.Errorf("%q does not begin with a gate's number and =; give one such as 2=10,100/1s", text)
	}
	if slices.ContainsFunc(*l, func(given feed.Limit) bool { return given.Gate == n }) {
		return fmt.Errorf("gate %d is given twice; give one limit for a gate, such as %d=10,100/1s", n, n)
	}
	for part := range strings.SplitSeq(rest, ",") {
		number, per, isRate := strings.Cut(part, "/")
		n, err := strconv.Atoi(number)
		if err != nil || n < 1 || (isRate && limit.Rate > 0) || (!isRate && limit.Concurrency > 0) {
			return fmt.Errorf("%q: %q is not one number of items from 1 on, or one rate such as 100/1s", text, part)
		}
		if !isRate {
			limit.Concurrency = n
			continue
		}
		limit.Rate = n
		if limit.Per, err = time.ParseDuration(per); err != nil {
			return fmt.Errorf("%q: %q is not a duration such as 1s, 90s or 1h", text, per)
		}
		if limit.Per < time.Second || limit.Per > 24*time.Hour {
			return fmt.Errorf("%q: %v is not in 1s..24h", text, limit.Per)
		}
	}
	*l = append(*l, limit)
	return nil
}

const (
	// readyWait is the maximum time in which the database must answer for a watcher to be ready.
	readyWait = 2 * time.Second
	// metricsTime limits a request and its response.
	metricsTime = time.Minute
	// metricsConnections is the maximum number of connections per address. Prometheus and probes need few.
	metricsConnections = 64
)

var errNotReady = httpserve.Refuse(http.StatusServiceUnavailable, "", "the database does not answer")

// runServing runs a watcher. Meanwhile, it serves /metrics, /healthz, /readyz and, unless that is off, /console/ on the address of --metrics.
func (f *flags) runServing(ctx context.Context, s *feed.Store, w *feed.Watcher, log *slog.Logger) error {
	var pages http.Handler
	if f.console {
		c, err := consolecmd.OfFeed(s, w, f.metrics, f.consoleToken, log)
		if err != nil {
			return err
		}
		defer c.Close()
		pages = c
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(feedmetrics.New(s, w), collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	ready := func(_ http.ResponseWriter, r *http.Request) error {
		ctx, cancel := context.WithTimeout(r.Context(), readyWait)
		defer cancel()
		if _, err := s.Partitions(ctx, feed.Query{Limit: 1}); err != nil {
			return fmt.Errorf("%w: %w", errNotReady, err)
		}
		return nil
	}
	loopback, _ := service.Loopback(f.metrics) // listening on an invalid address fails later
	frame := httpserve.NewFrame(httpserve.System{
		Log: log, Text: true, Unguarded: true, Loopback: loopback, Private: "have the proxy check who may read the metrics",
		Describe: func(err error) *httpserve.Error { return httpserve.Describe(err, nil) },
	}, httpserve.Common(httpserve.Open, promhttp.HandlerFor(registry, promhttp.HandlerOpts{}), nil, ready))
	srv, err := httpserve.Listen(ctx, httpserve.Config{
		Address: f.metrics, Flag: "--metrics", Handler: httpserve.Mount(ctx, "/console/", pages, frame), Read: metricsTime, Write: metricsTime,
		PerAddress: metricsConnections, Log: log,
	})
	if err != nil {
		return fmt.Errorf("--metrics: %w", err)
	}
	defer func() {
		if err := srv.Stop(context.WithoutCancel(ctx), readyWait); err != nil {
			log.Warn("feed: metrics", "error", err)
		}
	}()
	log.Info("feed: metrics", "url", "http://"+srv.Addr()+"/metrics")
	return w.Run(ctx)
}
