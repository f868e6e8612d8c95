package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"

	"github.com/jetpull/jetpull/partition"
)

// orders is the number of orders per customer in the demo.
const orders = 60

var names = []string{"ada", "grace", "joan"}

// observer reads the output of the members and checks the order of each customer's orders. It prints all other lines: the owners of partitions.
type observer struct {
	mu         sync.Mutex
	next       map[string]int // by customer
	handled    int
	repeated   int
	outOfOrder int
	all        chan struct{} // closed when all orders are handled

	// All members write to one pipe, so that their lines are read in the order in which they were written.
	lines, output *os.File
	end           chan struct{} // closed when all lines are read
}

func newObserver(out io.Writer) (*observer, error) {
	o := &observer{next: map[string]int{}, all: make(chan struct{}), end: make(chan struct{})}
	var err error
	if o.lines, o.output, err = os.Pipe(); err == nil {
		go o.read(out)
	}
	return o, err
}

func (o *observer) read(out io.Writer) {
	defer close(o.end)
	for lines := bufio.NewScanner(o.lines); lines.Scan(); {
		var name, customer string
		var order int
		if _, err := fmt.Sscanf(lines.Text(), "%s order %d of %s", &name, &order, &customer); err == nil {
			o.order(customer, order)
		} else {
			_, _ = fmt.Fprintln(out, lines.Text())
		}
	}
}

func (o *observer) order(customer string, n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch next := o.next[customer]; {
	case n < next:
		o.repeated++
		return
	case n > next:
		o.outOfOrder++
	}
	o.next[customer] = n + 1
	if o.handled++; o.handled == orders*customers {
		close(o.all)
	}
}

// demo runs three members, kills the first while orders are published, and starts it again.
func demo(ctx context.Context, out io.Writer) error {
	srv, js, stop, err := start(ctx, 0)
	if err != nil {
		return err
	}
	defer stop()
	if _, err := partition.Open(ctx, js, stream, set); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	o, err := newObserver(out)
	if err != nil {
		return err
	}
	defer func() { _ = o.lines.Close() }()
	member := func(name string) (*exec.Cmd, error) {
		cmd := exec.CommandContext(ctx, os.Args[0], "-member", name, "-nats", srv.URL())
		cmd.Env = append(os.Environ(), "PARTITION_EXAMPLE=member")
		cmd.Stdout, cmd.Stderr = o.output, os.Stderr
		return cmd, cmd.Start()
	}
	var running []*exec.Cmd
	for _, name := range names {
		cmd, err := member(name)
		if err != nil {
			return err
		}
		running = append(running, cmd)
	}
	published := make(chan error, 1)
	go func() { published <- publish(ctx, js, orders, 100*time.Millisecond) }()

	pause(ctx, 2*time.Second)
	err = running[0].Process.Kill()
	_ = running[0].Wait()
	_, _ = fmt.Fprintf(o.output, "%s is killed\n", names[0])
	pause(ctx, 3*time.Second)
	again, startErr := member(names[0])
	err = errors.Join(err, startErr, <-published)
	running[0] = again
	select {
	case <-o.all:
		pause(ctx, time.Second)
	case <-ctx.Done():
		err = errors.Join(err, ctx.Err())
	}
	for _, cmd := range running {
		err = errors.Join(err, cmd.Process.Signal(os.Interrupt))
	}
	for _, cmd := range running {
		err = errors.Join(err, cmd.Wait())
	}
	_ = o.output.Close()
	<-o.end
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "%d orders of %d customers, handled by 3 members, one of them killed: %d lost, %d out of order, %d repeated\n",
		o.handled, customers, orders*customers-o.handled, o.outOfOrder, o.repeated)
	return err
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
