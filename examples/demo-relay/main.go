// Demo-relay runs a webhook relay in this process. It sends events of three sources through the relay to four receivers, over real HTTP on
// loopback, and shows the requests that each receiver got.
//
// One receiver answers in the response, one answers later, one is limited to 200 POSTs in 10 seconds, and one refuses everything at first.
// When that one is repaired, its failed messages are redriven.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	var s settings
	flag.IntVar(&s.events, "events", 10_000, "events to send")
	flag.StringVar(&s.chart, "chart", "out/demo-relay.svg", "file for the chart")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := s.check(flag.Args())
	if err == nil {
		err = run(ctx, s, os.Stdout, os.Stderr)
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo-relay:", err)
		os.Exit(1)
	}
}

type settings struct {
	events int
	chart  string
}

const minEvents, maxEvents = 100, 1_000_000

func (s settings) check(args []string) error {
	switch {
	case len(args) > 0:
		return fmt.Errorf("argument %q is not understood; see -help", args[0])
	case s.events < minEvents || s.events > maxEvents:
		return fmt.Errorf("-events %d is not in %d..%d", s.events, minEvents, maxEvents)
	case s.chart == "":
		return fmt.Errorf("-chart is empty: give a file")
	}
	return nil
}
