// Command benchrelay puts load on a webhook relay and measures it: one way and round trips per second, latency at a
// steady rate, redrive, a naive path with the same library (take a message, POST it, acknowledge it), and memory and restart
// with a million messages that wait. On demand also what many receivers cost while nothing happens, and what a receiver
// that never answers costs the others. The relay is a process of its own, started from this program's binary; load, receivers and callbacks
// are in this one.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
)

// childEnv makes this program the relay, or the naive path, instead of its load.
const childEnv = "BENCHRELAY_CHILD"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := start(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "benchrelay:", err)
		os.Exit(1)
	}
}

type settings struct {
	cases     string
	rounds    int
	messages  int
	failed    int
	pending   int
	sources   int
	receivers int
	profile   string
}

func start(ctx context.Context) error {
	if dir := os.Getenv(childEnv); dir != "" {
		return runChild(ctx, dir)
	}
	var s settings
	flag.StringVar(&s.cases, "cases", "naive,one-way,round-trip,steady,redrive,pending", "cases to run, separated by commas; also fleet and black-hole")
	flag.IntVar(&s.rounds, "rounds", 3, "how often to run each case; the table has median, least and most")
	quick := flag.Bool("quick", false, "one round, 20,000 failed messages and 100,000 that wait")
	flag.IntVar(&s.messages, "messages", 20_000, "messages in a case")
	flag.IntVar(&s.failed, "failed", 100_000, "failed messages that are redriven")
	flag.IntVar(&s.pending, "pending", 1_000_000, "messages that wait, in case pending")
	flag.IntVar(&s.sources, "sources", 10_000, "messages in case fleet, each of a source of its own")
	flag.IntVar(&s.receivers, "receivers", 1_000, "receivers in case fleet")
	flag.StringVar(&s.profile, "profile", "", "file for a CPU profile of the last relay")
	flag.Parse()
	if *quick {
		s.rounds, s.failed, s.pending = 1, 20_000, 100_000
	}
	return run(ctx, s)
}

// run runs the cases in turn, in rounds, so that what else the machine does hits all of them alike.
func run(ctx context.Context, s settings) error {
	var names []string
	figures := map[string][]float64{}
	for range s.rounds {
		for _, c := range cases {
			if !slices.Contains(strings.Split(s.cases, ","), c.name) {
				continue
			}
			measured, err := c.run(ctx, s)
			if err != nil {
				return fmt.Errorf("case %s: %w", c.name, err)
			}
			for _, f := range measured {
				if figures[f.name] == nil {
					names = append(names, f.name)
				}
				figures[f.name] = append(figures[f.name], f.value)
				fmt.Fprintf(os.Stderr, "%s: %.4g\n", f.name, f.value)
			}
		}
	}
	fmt.Println("| case | median | least | most |\n| --- | --- | --- | --- |")
	for _, name := range names {
		values := figures[name]
		slices.Sort(values)
		fmt.Printf("| %s | %.4g | %.4g | %.4g |\n", name, values[len(values)/2], values[0], values[len(values)-1])
	}
	return nil
}
