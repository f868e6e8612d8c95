// Command benchbroker puts load on a webhook broker and measures it: broadcast,
// push end to end and at a steady rate, pull in both styles, listing at several
// depths, memory, and a restart. The broker is a process of its own, started
// from this program's binary; load and receivers are in this process. It writes
// a table in Markdown, with the ratios to what the system measured that the
// broker takes the place of (2 cores, MariaDB on loopback, synced at each commit),
// and beside each row what the disk and a handler that only syncs did just before.
//
// Those figures were recorded on another day. With -beside, the same load goes in
// the same rounds to a broker that somebody has started and that has the same
// contract (the original, or another build of this one), and the ratios are to
// what it does: broadcast, push, pull with queued-jobs, and queued-jobs at each
// depth. The others are still to the recorded figures, and say so; those of
// claims, which the original does not have, are to its workers with queued-jobs.
// Each case registers a producer and a channel of its own and leaves what it
// stored, so start with an empty store.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
)

// childEnv makes this program the broker itself instead of its load.
const childEnv = "BENCHBROKER_CHILD"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := start(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "benchbroker:", err)
		os.Exit(1)
	}
}

func start(ctx context.Context) error {
	if dir := os.Getenv(childEnv); dir != "" {
		return runChild(ctx, dir, os.Getenv(childEnv+"_SYNC"))
	}
	var s settings
	flag.StringVar(&s.beside, "beside", "", "address of a running broker with the same contract, such as http://127.0.0.1:8080, to measure in the same rounds")
	flag.StringVar(&s.syncs, "sync", "always,2m", "sync settings to measure, separated by commas")
	flag.StringVar(&s.cases, "cases", "broadcast,push,steady,pull,depth,million", "cases to run, separated by commas; million takes longest, and runs once, with the first setting")
	flag.StringVar(&s.pull, "pull", "", "of the pull cases only one: listed, claimed or paged, and 1 or 8 workers, such as paged8")
	flag.IntVar(&s.rounds, "rounds", 3, "how often to run each case; the table has the median")
	flag.IntVar(&s.messages, "messages", 4000, "messages in a case")
	flag.IntVar(&s.connections, "connections", 32, "connections that broadcast")
	flag.StringVar(&profilePath, "profile", "", "file for a CPU profile of the last broker")
	flag.Parse()
	if s.beside != "" && !strings.HasPrefix(s.beside, "http://") {
		return fmt.Errorf("-beside %q is no address of a broker: give one such as http://127.0.0.1:8080", s.beside)
	}
	return run(ctx, s)
}

// profilePath is where a broker writes its CPU profile, if anywhere.
var profilePath string

type settings struct {
	syncs       string
	beside      string
	cases       string
	pull        string
	rounds      int
	messages    int
	connections int
}

func (s settings) wants(name string) bool { return slices.Contains(strings.Split(s.cases, ","), name) }

// bench is a case. Its target is a sync setting of our broker, or the address of
// the broker beside it. The case that is run once has the same figures with any
// setting, but takes its time, and restarts the broker.
type bench struct {
	name string
	run  func(context.Context, settings, string) ([]figure, error)
	once bool
}

var benches = []bench{
	{"broadcast", benchBroadcast, false},
	{"push", benchPush, false},
	{"steady", benchSteady, false},
	{"pull", benchPull, false},
	{"depth", benchDepth, false},
	{"million", benchMillion, true},
}

// run runs each case with each setting in turn, in rounds, so that what else the
// machine does hits all of them alike.
func run(ctx context.Context, s settings) error {
	t := &table{syncs: strings.Split(s.syncs, ","), beside: s.beside}
	var err error
	for _, b := range benches {
		if err == nil && s.wants(b.name) {
			err = b.measure(ctx, s, t)
		}
	}
	return errors.Join(err, t.write(os.Stdout))
}

func (b bench) measure(ctx context.Context, s settings, t *table) error {
	rounds, targets := s.rounds, t.syncs
	switch {
	case b.once:
		rounds, targets = 1, targets[:1]
	case s.beside != "":
		targets = append(slices.Clone(targets), s.beside)
	}
	for round := range rounds {
		for _, target := range targets {
			fmt.Fprintf(os.Stderr, "%s, %s, round %d of %d\n", b.name, target, round+1, rounds)
			before, err := measureGround(ctx)
			if err != nil {
				return fmt.Errorf("what the machine can do: %w", err)
			}
			figures, err := b.run(ctx, s, target)
			if err != nil {
				return fmt.Errorf("case %s, %s: %w", b.name, target, err)
			}
			for _, f := range figures {
				t.add(target, f, before)
			}
		}
	}
	return nil
}
