// Command bench measures this library against nats.go, and both against what the protocol allows, in one process and
// against one server in a process of its own. README.md says how to read what it writes.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"time"
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
	json          bool
	list          bool
}

func main() {
	if len(os.Args) > 1 && os.Args[1] == serveCommand {
		os.Exit(serveMain(os.Args[2:]))
	}
	os.Exit(benchMain(os.Args[1:]))
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
	flags.DurationVar(&s.idleWindow, "idle", time.Minute, "how long idle subscriptions are watched")
	flags.StringVar(&s.out, "out", "out/bench", "folder for bench.md, bench.svg and bench.json")
	flags.StringVar(&s.store, "store", "", "folder for the server's store, on a disk; empty: the system's temporary folder")
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
		{"-payload", s.payload, indexSize},
	} {
		if n.value < n.min {
			return fmt.Errorf("%s %d: must be at least %d", n.flag, n.value, n.min)
		}
	}
	if s.idleWindow <= 0 {
		return fmt.Errorf("-idle %v: must be positive", s.idleWindow)
	}
	return nil
}

func run(ctx context.Context, s settings) error {
	cases := selectCases(allCases(), s.name, s.messages)
	idle := s.name.MatchString(idleName)
	if s.list {
		for _, c := range allCases() {
			fmt.Printf("%-18s %s\n", c.Name, c.Title)
		}
		fmt.Printf("%-18s %s\n", idleName, "Subscriptions with nothing to do: goroutines, memory, requests")
		return nil
	}
	if len(cases) == 0 && !idle {
		return fmt.Errorf("-case %q matches no case; -list prints them", s.name)
	}
	report, failed := measure(ctx, s, cases, idle)
	if report == nil {
		return failed
	}
	return errors.Join(failed, publishReport(report, s))
}

// measure runs what was chosen. A case that fails does not keep the others from running; its error is joined to the
// result. Without a server there is no report.
func measure(ctx context.Context, s settings, cases []Case, idle bool) (*Report, error) {
	load := loadAverage()
	servers, err := startServer(ctx, s.store, slowLinkDelay)
	if err != nil {
		return nil, err
	}
	progress := newProgress(os.Stderr, countTurns(cases, s.rounds, idle))
	runner, err := newRunner(servers.endpoints, s, progress)
	if err != nil {
		return nil, errors.Join(err, servers.Close())
	}
	defer runner.Close()
	report := &Report{}
	var errs []error
	if report.Environment, err = runner.environment(load); err != nil {
		return nil, errors.Join(err, servers.Close())
	}
	for _, c := range cases {
		if ctx.Err() != nil {
			break
		}
		result, err := runner.Case(ctx, c)
		report.Cases = append(report.Cases, result)
		errs = append(errs, err)
	}
	if idle && ctx.Err() == nil {
		report.Idle, err = runner.Idle(ctx, s.idleWindow)
		errs = append(errs, err)
	}
	progress.Done()
	return report, errors.Join(append(errs, context.Cause(ctx), servers.Close())...)
}

func countTurns(cases []Case, rounds int, idle bool) int {
	turns := 0
	for _, c := range cases {
		turns += len(c.contenders()) * (rounds + 1)
	}
	if idle {
		turns += len(idleContenders)
	}
	return turns
}

// publishReport writes the three files and prints the report.
func publishReport(report *Report, s settings) error {
	if err := writeFiles(report, s.out); err != nil {
		return err
	}
	if !s.json {
		return writeMarkdown(os.Stdout, report)
	}
	out := json.NewEncoder(os.Stdout)
	out.SetIndent("", "  ")
	return out.Encode(report)
}
