package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"
	"github.com/spf13/cobra"

	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
	"github.com/jetpull/jetpull/internal/progress"
)

type benchFlags struct {
	messages, payload, batch, rounds int
	memory                           bool
}

func newBenchCommand(g *globals) *cobra.Command {
	f := &benchFlags{}
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure pulling from your server, with this library and with nats.go",
		Long: `bench stores messages in a stream of its own, pulls and acknowledges all of them
in several ways, with this library and with nats.go in turn, and removes the
stream. Each round has a fresh consumer, and counts only if the server has an
acknowledgement of every message. The figures are medians of the rounds.

If no server is named anywhere, it runs one in this process; client and server
then share the processors, and the rates are lower than with a server of its own.`,
		Args: cli.UsageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return runBench(cmd, g, f) },
	}
	flags := cmd.Flags()
	flags.IntVarP(&f.messages, "messages", "n", 20_000, "messages in a round; Next gets a tenth of them")
	flags.IntVar(&f.payload, "payload", 128, "payload of a message in `BYTES`")
	flags.IntVar(&f.batch, "batch", 100, "messages to Fetch at a time")
	flags.IntVar(&f.rounds, "rounds", 5, "rounds to measure; one more is run first to warm up")
	flags.BoolVar(&f.memory, "memory", false, "keep the stream in the server's memory instead of on its disk")
	return cmd
}

func (f *benchFlags) check() error {
	for _, v := range []struct {
		flag              string
		value, least, top int
	}{
		{"messages", f.messages, 10, 10_000_000},
		{"payload", f.payload, 0, 1 << 20},
		{"batch", f.batch, 1, 100_000},
		{"rounds", f.rounds, 1, 1000},
	} {
		if v.value < v.least || v.value > v.top {
			return cli.Usage(fmt.Errorf("--%s %d is not in %d..%d", v.flag, v.value, v.least, v.top))
		}
	}
	return nil
}

func runBench(cmd *cobra.Command, g *globals, f *benchFlags) (err error) {
	if err := f.check(); err != nil {
		return err
	}
	t, err := g.target.resolve()
	if err != nil {
		return err
	}
	where := "the server"
	if t.url == "" && t.context == "" && t.embedded == "" {
		dir, err := os.MkdirTemp("", "jetpull-bench-")
		if err != nil {
			return fmt.Errorf("make a folder for the store: %w", err)
		}
		defer func() { _ = os.RemoveAll(dir) }()
		t.embedded = dir
	}
	if t.embedded != "" {
		where = "a server in this process"
	}
	l, err := t.open(cmd.Context(), "bench", cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	defer l.close()
	ctx := cmd.Context()
	b := &bench{flags: *f, js: l.js, stream: "JETPULL_BENCH_" + nuid.Next(), timeout: t.timeout}
	if err := b.prepare(ctx, g, cmd.ErrOrStderr()); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.remove(ctx)) }()
	results, err := b.measure(ctx, g, cmd.ErrOrStderr())
	if ctx.Err() != nil {
		return cli.ErrInterrupted
	}
	if err != nil {
		return err
	}
	if g.json {
		for _, r := range results {
			if err := cli.WriteJSON(cmd.OutOrStdout(), r); err != nil {
				return err
			}
		}
		return nil
	}
	return printBench(cmd.OutOrStdout(), f, where, results)
}

// bench is one run, with the stream that it made.
type bench struct {
	flags   benchFlags
	js      jetstream.JetStream
	stream  string
	timeout time.Duration
}

// prepare makes the stream and fills it.
func (b *bench) prepare(ctx context.Context, g *globals, errOut io.Writer) error {
	cfg := jetstream.StreamConfig{Name: b.stream, Subjects: []string{b.stream}}
	if b.flags.memory {
		cfg.Storage = jetstream.MemoryStorage
	}
	if _, err := b.js.CreateStream(ctx, cfg); err != nil {
		return fmt.Errorf("create stream %s: %w", b.stream, err)
	}
	bar := newBar(g, errOut, "publish", b.flags.messages)
	defer bar.Done()
	err := b.fill(ctx, bar)
	if err != nil {
		err = errors.Join(err, b.remove(ctx))
	}
	return err
}

func newBar(g *globals, errOut io.Writer, title string, total int) *progress.Bar {
	if g.quiet || g.json {
		return nil
	}
	return progress.New(errOut, title, int64(total))
}

func (b *bench) fill(ctx context.Context, bar *progress.Bar) error {
	const inFlight = 500
	body := make([]byte, b.flags.payload)
	for done := 0; done < b.flags.messages; {
		n := min(inFlight, b.flags.messages-done)
		futures := make([]jetstream.PubAckFuture, n)
		for i := range futures {
			var err error
			if futures[i], err = b.js.PublishAsync(b.stream, body); err != nil {
				return fmt.Errorf("publish: %w", err)
			}
		}
		for _, f := range futures {
			select {
			case <-f.Ok():
			case err := <-f.Err():
				return fmt.Errorf("publish: %w", err)
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		done += n
		bar.Add(n)
	}
	return nil
}

// remove deletes the stream, also after an interruption.
func (b *bench) remove(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), b.timeout)
	defer cancel()
	if err := b.js.DeleteStream(ctx, b.stream); err != nil {
		return fmt.Errorf("remove stream %s; delete it by hand: %w", b.stream, err)
	}
	return nil
}

// benchResult is one case: medians in messages a second.
type benchResult struct {
	Case     string  `json:"case"`
	Messages int     `json:"messages"`
	Rounds   int     `json:"rounds"`
	Jetpull  float64 `json:"jetpull_per_second"`
	NATS     float64 `json:"natsgo_per_second"`
	Ratio    float64 `json:"ratio"`
}

// measure runs all cases. The contenders take turns, so that what else the
// machine does hits both.
func (b *bench) measure(ctx context.Context, g *globals, errOut io.Writer) ([]benchResult, error) {
	cases := b.cases()
	bar := newBar(g, errOut, "rounds", len(cases)*2*(b.flags.rounds+1))
	defer bar.Done()
	var results []benchResult
	for _, c := range cases {
		var took [2][]time.Duration
		for round := range b.flags.rounds + 1 {
			for i, run := range []contender{c.ours, c.theirs} {
				d, err := b.round(ctx, c.messages, run)
				if err != nil {
					return nil, fmt.Errorf("%s: %w", c.name, err)
				}
				if round > 0 {
					took[i] = append(took[i], d)
				}
				bar.Add(1)
			}
		}
		ours, theirs := median(took[0]), median(took[1])
		results = append(results, benchResult{
			Case: c.name, Messages: c.messages, Rounds: b.flags.rounds,
			Jetpull: float64(c.messages) / ours.Seconds(), NATS: float64(c.messages) / theirs.Seconds(),
			Ratio: theirs.Seconds() / ours.Seconds(),
		})
	}
	return results, nil
}

func median(d []time.Duration) time.Duration {
	d = slices.Sorted(slices.Values(d))
	return (d[len(d)/2] + d[(len(d)-1)/2]) / 2
}

func printBench(out io.Writer, f *benchFlags, where string, results []benchResult) error {
	var rows [][]string
	for _, r := range results {
		rows = append(rows, []string{
			r.Case, progress.Count(r.Messages), progress.Count(int64(r.Jetpull)), progress.Count(int64(r.NATS)),
			fmt.Sprintf("%.2f", r.Ratio),
		})
	}
	_, err := fmt.Fprintf(out, "Messages of %d bytes, with %s; medians of %d rounds in turn.\n", f.payload, where, f.rounds)
	if err != nil {
		return err
	}
	return progress.Table(out, []string{"case", ">messages", ">jetpull msg/s", ">nats.go msg/s", ">ratio"}, rows)
}
