// Command benchbroker puts load on a webhook broker and measures it: broadcast,
// push end to end and at a steady rate, pull in both styles, listing at several
// depths, memory, and a restart. The broker is a process of its own, started
// from this program's binary; load and receivers are in this process. It writes
// a table in Markdown, with the ratios to what the system measured that the
// broker takes the place of (2 cores, MariaDB on loopback, synced at each commit),
// and beside each row what the disk and a handler that only syncs did just before.
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
	flag.StringVar(&s.syncs, "sync", "always,2m", "sync settings to measure, separated by commas")
	flag.StringVar(&s.cases, "cases", "broadcast,push,steady,pull,depth,million", "cases to run, separated by commas; million takes longest, and runs once, with the first setting")
	flag.StringVar(&s.pull, "pull", "", "of the pull cases only one: listed, claimed or paged, and 1 or 8 workers, such as paged8")
	flag.IntVar(&s.rounds, "rounds", 3, "how often to run each case; the table has the median")
	flag.IntVar(&s.messages, "messages", 4000, "messages in a case")
	flag.IntVar(&s.connections, "connections", 32, "connections that broadcast")
	flag.StringVar(&profilePath, "profile", "", "file for a CPU profile of the last broker")
	flag.Parse()
	return run(ctx, s)
}

// profilePath is where a broker writes its CPU profile, if anywhere.
var profilePath string

type settings struct {
	syncs       string
	cases       string
	pull        string
	rounds      int
	messages    int
	connections int
}

func (s settings) wants(name string) bool { return slices.Contains(strings.Split(s.cases, ","), name) }

// bench is a case. The one that is run once has the same figures with any
// setting, but takes its time.
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
	t := &table{syncs: strings.Split(s.syncs, ",")}
	var err error
	for _, b := range benches {
		if err == nil && s.wants(b.name) {
			err = b.measure(ctx, s, t)
		}
	}
	return errors.Join(err, t.write(os.Stdout))
}

func (b bench) measure(ctx context.Context, s settings, t *table) error {
	rounds, syncs := s.rounds, t.syncs
	if b.once {
		rounds, syncs = 1, syncs[:1]
	}
	for round := range rounds {
		for _, sync := range syncs {
			fmt.Fprintf(os.Stderr, "%s, --sync %s, round %d of %d\n", b.name, sync, round+1, rounds)
			before, err := measureGround(ctx)
			if err != nil {
				return fmt.Errorf("what the machine can do: %w", err)
			}
			figures, err := b.run(ctx, s, sync)
			if err != nil {
				return fmt.Errorf("case %s, --sync %s: %w", b.name, sync, err)
			}
			for _, f := range figures {
				t.add(sync, f, before)
			}
		}
	}
	return nil
}
