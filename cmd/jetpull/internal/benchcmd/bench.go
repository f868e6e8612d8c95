// Package benchcmd is the command that measures on the user's server what make bench measures on its own.
package benchcmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"
	"github.com/spf13/cobra"

	"github.com/jetpull/jetpull/bench/measure"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/client"
	"github.com/jetpull/jetpull/internal/progress"
)

type benchFlags struct {
	name                      string
	messages, payload, rounds int
	memory                    bool
}

// share is the part of a case's own number of messages that a round has here: of make bench's, which are for loopback.
const share = 5

// New returns the command bench.
func New(g *client.Globals) *cobra.Command {
	f := &benchFlags{}
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure pulling from your server, with this library and with nats.go",
		Long: `bench stores messages in streams of its own, pulls and acknowledges all of them
in several ways, with this library and with nats.go in turn, and removes the
streams. Each round has a fresh consumer and connection, and counts only if every
message was received and the server has an acknowledgement of each. The figures are
medians of the rounds; the ratio is taken round by round.

If no server is named anywhere, it runs one in this process; client and server
then share the processors, and the rates are lower than with a server of its own.

The cases, and the messages in a round unless --messages says how many:
` + caseList(),
		Example: `  jetpull bench --server nats://far.example:4222 --messages 500
  jetpull bench --case '^(fetch|confirm)' --rounds 9`,
		Args: cli.UsageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd, g) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.name, "case", "^(next-1|fetch-100|consume-ack)$", "measure the cases whose name matches the regular `EXPRESSION`")
	flags.IntVarP(&f.messages, "messages", "n", 0, "messages in a round, for every case; 0 for each case's own number")
	flags.IntVar(&f.payload, "payload", 128, "payload of a message in `BYTES`")
	flags.IntVar(&f.rounds, "rounds", 5, "rounds to measure; one more is run first to warm up")
	flags.BoolVar(&f.memory, "memory", false, "keep the streams in the server's memory instead of on its disk")
	return cmd
}

// cases are those that ask for a rate, on any server, each with the usual way of nats.go as its one rival. The slow link is
// make bench's own.
func cases(name *regexp.Regexp, messages int) []measure.Case {
	chosen := slices.DeleteFunc(measure.Select(name, messages), func(c measure.Case) bool { return c.Delayed || !c.Once })
	for i := range chosen {
		chosen[i].Rivals = chosen[i].Rivals[:1]
		if messages == 0 {
			chosen[i].Messages /= share
		}
	}
	return chosen
}

func caseList() string {
	var b strings.Builder
	for _, c := range cases(regexp.MustCompile(""), 0) {
		fmt.Fprintf(&b, "  %-12s  %s, %s messages\n", c.Name, c.Title, progress.Count(c.Messages))
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// chosen checks the flags and returns the cases that they name.
func (f *benchFlags) chosen() ([]measure.Case, error) {
	name, err := regexp.Compile(f.name)
	if err != nil {
		return nil, cli.Usage(fmt.Errorf("--case: %w", err))
	}
	if f.messages != 0 {
		err = client.InRange("--messages", f.messages, 10, 10_000_000)
	}
	err = cmp.Or(err, client.InRange("--payload", f.payload, measure.LeastPayload, 1<<20), client.InRange("--rounds", f.rounds, 1, 1000))
	if err != nil {
		return nil, err
	}
	chosen := cases(name, f.messages)
	if len(chosen) == 0 {
		return nil, cli.Usage(fmt.Errorf("--case %q matches no case; --help lists them", f.name))
	}
	return chosen, nil
}

func (f *benchFlags) run(cmd *cobra.Command, g *client.Globals) (err error) {
	chosen, err := f.chosen()
	if err != nil {
		return err
	}
	t, err := g.Target.Resolve()
	if err != nil {
		return err
	}
	where := "the server"
	if t.URL == "" && t.Context == "" && t.Embedded == "" {
		dir, err := os.MkdirTemp("", "jetpull-bench-")
		if err != nil {
			return fmt.Errorf("make a folder for the store: %w", err)
		}
		defer func() { _ = os.RemoveAll(dir) }()
		t.Embedded = dir
	}
	if t.Embedded != "" {
		where = "a server in this process"
	}
	l, err := t.Open(cmd.Context(), "bench", cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	defer l.Close()
	results, err := f.measure(cmd.Context(), l, g, cmd.ErrOrStderr(), chosen)
	if cmd.Context().Err() != nil {
		return cli.ErrInterrupted
	}
	if err != nil {
		return err
	}
	if g.JSON {
		for _, r := range results {
			if err := cli.WriteJSON(cmd.OutOrStdout(), r); err != nil {
				return err
			}
		}
		return nil
	}
	return f.print(cmd.OutOrStdout(), where, results)
}

func (f *benchFlags) measure(
	ctx context.Context, l *client.Link, g *client.Globals, errOut io.Writer, chosen []measure.Case,
) (results []benchResult, err error) {
	plan := measure.Plan{
		Rounds: f.rounds, Payload: f.payload, MaxAckPending: -1, Streams: "JETPULL_BENCH_" + nuid.Next(), Storage: jetstream.FileStorage,
	}
	if f.memory {
		plan.Storage = jetstream.MemoryStorage
	}
	runner := measure.NewRunner(measure.Links{Direct: measure.Link{JetStream: l.JS}}, plan)
	defer func() { err = errors.Join(err, runner.Close(ctx)) }()
	if !g.Quiet && !g.JSON {
		runner.Progress = progress.New(errOut, "turns", runner.Turns(chosen, false))
	}
	defer runner.Progress.Done()
	for _, c := range chosen {
		figures, err := runner.Case(ctx, c)
		if err != nil {
			return nil, err
		}
		got, _ := figures.Compare()
		results = append(results, benchResult{c.Name, got.Messages, f.rounds, got.Ours, got.Theirs, got.Rate})
	}
	return results, nil
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

func (f *benchFlags) print(out io.Writer, where string, results []benchResult) error {
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
