// Command benchbroker puts load on a webhook broker and measures it: broadcast,
// push end to end and at a steady rate, pull in both styles, listing at several
// depths, memory, and a restart. The broker is a process of its own, started
// from this program's binary; load and receivers are in this process.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"text/tabwriter"
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
	flag.StringVar(&s.cases, "cases", "broadcast,push,steady,pull,depth", "cases to run, separated by commas; million too")
	flag.StringVar(&s.pull, "pull", "", "of the pull cases only one: listed, claimed or paged, and 1 or 8 workers, such as paged8")
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
	messages    int
	connections int
}

func (s settings) wants(name string) bool {
	for _, c := range strings.Split(s.cases, ",") {
		if c == name {
			return true
		}
	}
	return false
}

// row is one line of the result.
type row struct {
	name, ours, original string
}

func run(ctx context.Context, s settings) error {
	for _, sync := range strings.Split(s.syncs, ",") {
		rows, err := measure(ctx, s, sync)
		if err = errors.Join(err, printRows(sync, rows)); err != nil {
			return fmt.Errorf("--sync %s: %w", sync, err)
		}
	}
	return nil
}

func printRows(sync string, rows []row) error {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	lines := append([]row{{"\n--sync " + sync, "ours", "original (MariaDB, synced)"}}, rows...)
	for _, r := range lines {
		if _, err := fmt.Fprintf(w, "%s\t%s\t%s\n", r.name, r.ours, r.original); err != nil {
			return err
		}
	}
	return w.Flush()
}

// measure runs every case against brokers with one sync setting.
func measure(ctx context.Context, s settings, sync string) ([]row, error) {
	var rows []row
	for _, c := range []struct {
		name string
		run  func(context.Context, settings, string) ([]row, error)
	}{
		{"broadcast", benchBroadcast},
		{"push", benchPush},
		{"steady", benchSteady},
		{"pull", benchPull},
		{"depth", benchDepth},
		{"million", benchMillion},
	} {
		if !s.wants(c.name) {
			continue
		}
		more, err := c.run(ctx, s, sync)
		rows = append(rows, more...)
		if err != nil {
			return rows, fmt.Errorf("case %s: %w", c.name, err)
		}
	}
	return rows, nil
}
