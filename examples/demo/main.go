// Demo publishes a backlog of orders to a NATS server, processes it with jetpull in three ways, and then shows the server's counters.
//
// Without -nats, it runs its own server, with a file store in a temporary folder.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	var s settings
	flag.StringVar(&s.url, "nats", "", "server to use; empty starts one in this process")
	flag.StringVar(&s.store, "store", "", "folder for the store of that server, which is kept; empty for a temporary one")
	flag.IntVar(&s.orders, "orders", 100_000, "orders in the backlog")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := s.check(flag.Args())
	if err == nil {
		err = run(ctx, s, os.Stdout, os.Stderr)
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

type settings struct {
	url, store string
	orders     int
}

const minOrders, maxOrders = 100, 10_000_000

func (s settings) check(args []string) error {
	switch {
	case len(args) > 0:
		return fmt.Errorf("argument %q is not understood; see -help", args[0])
	case s.orders < minOrders || s.orders > maxOrders:
		return fmt.Errorf("-orders %d is not in %d..%d", s.orders, minOrders, maxOrders)
	case s.url != "" && s.store != "":
		return errors.New("-store is the folder of a server in this process; leave it out with -nats")
	}
	return nil
}
