// Command bench measures this library against nats.go, and both against what the protocol allows, in one process and
// against one server in a process of its own. README.md says how to read what it writes.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"time"

	"github.com/jetpull/jetpull/bench/internal/report"
	"github.com/jetpull/jetpull/bench/measure"
	"github.com/jetpull/jetpull/internal/progress"
)

// slowLinkDelay is the one-way latency of the slow link: 5 ms there and back.
const slowLinkDelay = 2500 * time.Microsecond

// settings are the flags.
type settings struct {
	rounds        int
	name          *regexp.Regexp
	messages      int
	payload       int
	maxAckPending int
	idleWindow    time.Duration
	out           string
	store         string
	against       string
	from          string
	docs          bool
	json          bool
	list          bool
}

func main() {
	if code, ok := hiddenMain(os.Args[1:]); ok {
		os.Exit(code)
	}
	os.Exit(benchMain(os.Args[1:]))
}

// hiddenMain runs one of the processes that this program starts itself as, and returns its exit code. An interrupt at the
// terminal reaches such a process too; the parent handles it and closes stdin when it has no more use for the process.
func hiddenMain(args []string) (code int, ok bool) {
	if len(args) == 0 || (args[0] != serveCommand && args[0] != clientCommand) {
		return 0, false
	}
	signal.Ignore(os.Interrupt)
	var err error
	if args[0] == serveCommand {
		err = serve(args[1:], os.Stdin, os.Stdout)
	} else {
		err = serveTurns(args[1:], os.Stdin, os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		return 1, true
	}
	return 0, true
}

// benchMain returns the exit code: 0 done, 1 something failed, 2 the arguments are wrong.
func benchMain(args []string) int {
	s, err := parseSettings(args)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, s); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		return 1
	}
	return 0
}

func parseSettings(args []string) (settings, error) {
	var s settings
	var name string
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.IntVar(&s.rounds, "rounds", 7, "counted rounds of each case; one more warms up")
	flags.StringVar(&name, "case", "", "run the cases whose name matches this regular expression")
	flags.IntVar(&s.messages, "msgs", 0, "messages in a round; 0: each case's own number")
	flags.IntVar(&s.payload, "payload", 128, "bytes in a message")
	flags.IntVar(&s.maxAckPending, "max-ack-pending", 0, "MaxAckPending of the consumers; 0: the server's default")
	flags.DurationVar(&s.idleWindow, "idle", 45*time.Second, "how long idle Consumes are watched")
	flags.StringVar(&s.out, "out", "out/bench", "folder for bench.md, bench.svg and bench.json")
	flags.StringVar(&s.store, "store", "", "folder for the server's store, on a disk; empty: the system's temporary folder")
	flags.StringVar(&s.against, "against", "", "compare this build with that of a git revision or of a checkout's folder, in turn")
	flags.StringVar(&s.from, "from", "", "measure nothing: read the report from this bench.json")
	flags.BoolVar(&s.docs, "docs", false, "also write docs/bench.md, docs/bench.svg and the README's part on performance")
	flags.BoolVar(&s.json, "json", false, "print the report as JSON, not as Markdown")
	flags.BoolVar(&s.list, "list", false, "print the names of the cases and end")
	if err := flags.Parse(args); err != nil {
		return s, err
	}
	if flags.NArg() > 0 {
		return s, fmt.Errorf("unexpected argument %q: there are only flags", flags.Arg(0))
	}
	return s, s.check(name)
}

// check compiles the name and refuses numbers that no run can have.
func (s *settings) check(name string) error {
	var err error
	if s.name, err = regexp.Compile(name); err != nil {
		return fmt.Errorf("-case %q: %w", name, err)
	}
	for _, n := range []struct {
		flag       string
		value, min int
	}{
		{"-rounds", s.rounds, 1},
		{"-msgs", s.messages, 0},
		{"-payload", s.payload, measure.LeastPayload},
	} {
		if n.value < n.min {
			return fmt.Errorf("%s %d: must be at least %d", n.flag, n.value, n.min)
		}
	}
	if s.idleWindow <= 0 {
		return fmt.Errorf("-idle %v: must be positive", s.idleWindow)
	}
	if s.docs && (name != "" || s.against != "") {
		return errors.New("-docs needs a report of all cases: leave -case and -against out")
	}
	return nil
}

func run(ctx context.Context, s settings) error {
	cases := measure.Select(s.name, s.messages)
	// Two builds are compared case by case; what is idle has no rounds.
	idle := s.name.MatchString(measure.IdleName) && s.against == ""
	if s.list {
		for _, c := range measure.Cases() {
			fmt.Printf("%-18s %s\n", c.Name, c.Title)
		}
		fmt.Printf("%-18s %s\n", measure.IdleName, "Consumes with nothing to do: memory, CPU time, frames")
		return nil
	}
	if s.from != "" {
		r, err := report.Read(s.from)
		if err != nil {
			return err
		}
		return publish(r, s)
	}
	if len(cases) == 0 && !idle {
		return fmt.Errorf("-case %q matches no case; -list prints them", s.name)
	}
	r, failed := play(ctx, s, cases, idle)
	if r == nil {
		return failed
	}
	if failed != nil {
		s.docs = false
	}
	return errors.Join(failed, publish(r, s))
}

// play runs what was chosen. A case that fails does not keep the others from running; its error is joined to the
// result. Without a server there is no report.
func play(ctx context.Context, s settings, cases []measure.Case, idle bool) (_ *report.Report, err error) {
	load := loadAverage()
	servers, err := startServer(ctx, s.store, slowLinkDelay)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, servers.Close()) }()
	runner := measure.NewRunner(servers.links, measure.Plan{
		Rounds: s.rounds, Payload: s.payload, MaxAckPending: s.maxAckPending, Streams: "BENCH",
	})
	if s.against != "" {
		var b *builds
		if b, err = startBuilds(ctx, ".", s.against, servers.endpoints); err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, b.Close()) }()
		runner.Contenders = b.contenders
	}
	runner.Progress = progress.New(os.Stderr, "turns", runner.Turns(cases, idle))
	r := &report.Report{Against: s.against}
	if r.Environment, err = environment(s, servers.links, load); err != nil {
		return nil, err
	}
	var errs []error
	if idle { // first, since what the cases leave behind would be freed meanwhile
		r.Idle, err = runner.Idle(ctx, s.idleWindow)
		errs = append(errs, err)
	}
	for _, c := range cases {
		if ctx.Err() != nil {
			break
		}
		result, err := runner.Case(ctx, c)
		r.Cases = append(r.Cases, result)
		errs = append(errs, err)
	}
	runner.Progress.Done()
	return r, errors.Join(append(errs, context.Cause(ctx))...)
}

// publish writes the report's files and prints the report.
func publish(r *report.Report, s settings) error {
	if err := report.WriteFiles(r, s.out); err != nil {
		return err
	}
	if s.docs {
		if err := report.WriteDocs(r, "."); err != nil {
			return err
		}
	}
	switch {
	case s.json:
		return report.WriteJSON(os.Stdout, r)
	case r.Against != "":
		return report.WriteComparison(os.Stdout, r)
	}
	return report.WriteMarkdown(os.Stdout, r)
}
