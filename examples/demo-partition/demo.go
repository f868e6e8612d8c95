package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"sync"
	"time"

	"github.com/jetpull/jetpull/examples/internal/chart"
	"github.com/jetpull/jetpull/partition"
)

// orders is how many orders each customer has in the demo.
const orders = 60

var names = []string{"ada", "grace", "joan"}

// observer reads what members print, and checks the order.
type observer struct {
	mu         sync.Mutex
	next       map[string]int // by customer
	handled    int
	repeated   int
	outOfOrder int
	all        chan struct{} // closed when all orders were handled

	// All members print into one pipe, so that their lines are read in the order in which they were printed.
	lines, output *os.File
	end           chan struct{} // closed when all lines were read
}

func newObserver() (*observer, error) {
	o := &observer{next: map[string]int{}, all: make(chan struct{}), end: make(chan struct{})}
	var err error
	if o.lines, o.output, err = os.Pipe(); err == nil {
		go o.read()
	}
	return o, err
}

func (o *observer) read() {
	defer close(o.end)
	for lines := bufio.NewScanner(o.lines); lines.Scan(); {
		var name, customer string
		var order int
		if _, err := fmt.Sscanf(lines.Text(), "%s order %d of %s", &name, &order, &customer); err == nil {
			o.order(customer, order)
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

// demo runs three members, kills the first while orders come in, and starts it again.
func demo(ctx context.Context, picture string, out io.Writer) error {
	srv, js, stop, err := start(ctx, 0)
	if err != nil {
		return err
	}
	defer stop()
	s, err := partition.Open(ctx, js, stream, set)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	o, err := newObserver()
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
	w := &witness{set: s, begin: time.Now()}
	for n := range partitions {
		w.rows = append(w.rows, chart.Row{Name: fmt.Sprint("partition ", n)})
	}
	watching, stopWatching := context.WithCancel(ctx)
	var watch sync.WaitGroup
	watch.Go(func() { w.watch(watching) })
	published := make(chan error, 1)
	go func() { published <- publish(ctx, js, orders, 100*time.Millisecond) }()

	pause(ctx, 2*time.Second)
	w.mark(names[0] + " is killed")
	err = running[0].Process.Kill()
	_ = running[0].Wait()
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
	stopWatching()
	watch.Wait()
	if err == nil {
		err = w.draw(picture)
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "%d orders of %d customers, handled by 3 members, one of them killed: %d lost, %d out of order, %d repeated\nChart of "+
		"the owner of each partition: %s\n",
		o.handled, customers, orders*customers-o.handled, o.outOfOrder, o.repeated, picture)
	return err
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// witness looks at the owners of all partitions, for the picture.
type witness struct {
	set   *partition.Set
	begin time.Time

	mu    sync.Mutex
	rows  []chart.Row // by partition
	marks []chart.Mark
}

func (w *witness) watch(ctx context.Context) {
	for ctx.Err() == nil {
		if all, err := w.set.Status(ctx); err == nil {
			w.mu.Lock()
			now, owners := time.Since(w.begin).Seconds(), append(slices.Clone(names), "")
			for _, p := range all {
				w.rows[p.Number].Spans = extend(w.rows[p.Number].Spans, now, slices.Index(owners, p.Member))
			}
			w.mu.Unlock()
		}
		pause(ctx, 50*time.Millisecond)
	}
}

// extend adds the owner that was seen now: the last one has the partition still, or another has it.
func extend(spans []chart.Span, now float64, owner int) []chart.Span {
	n := len(spans)
	if n > 0 {
		spans[n-1].To = now
	}
	if n > 0 && spans[n-1].State == owner {
		return spans
	}
	return append(spans, chart.Span{From: now, To: now, State: owner})
}

func (w *witness) mark(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.marks = append(w.marks, chart.Mark{X: time.Since(w.begin).Seconds(), Name: what})
}

func (w *witness) draw(path string) error {
	return chart.Save(path, chart.Timeline{
		Title: "The owner of each partition", XTitle: "seconds", States: append(slices.Clone(names), "nobody"), Rows: w.rows, Marks: w.marks,
	})
}
