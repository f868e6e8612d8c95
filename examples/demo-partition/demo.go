package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/jetpull/jetpull/internal/progress"
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
}

func (o *observer) read(out io.Reader) {
	for lines := bufio.NewScanner(out); lines.Scan(); {
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
func demo(ctx context.Context, chart string, out io.Writer) error {
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
	o := &observer{next: map[string]int{}, all: make(chan struct{})}
	var readers sync.WaitGroup
	member := func(name string) (*exec.Cmd, error) {
		cmd := exec.CommandContext(ctx, os.Args[0], "-member", name, "-nats", srv.URL())
		cmd.Env = append(os.Environ(), "PARTITION_EXAMPLE=member")
		cmd.Stderr = os.Stderr
		pipe, err := cmd.StdoutPipe()
		if err != nil {
			return nil, err
		}
		readers.Go(func() { o.read(pipe) })
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
	w := &witness{set: s, begin: time.Now(), owned: make([][]progress.Point, partitions)}
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
	readers.Wait()
	for _, cmd := range running {
		err = errors.Join(err, cmd.Wait())
	}
	stopWatching()
	watch.Wait()
	if err == nil {
		err = w.draw(chart)
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "%d orders of %d customers by 3 members, of which one was killed: %d lost, %d out of order, %d repeated\nwhich member owned which partition: %s\n",
		o.handled, customers, orders*customers-o.handled, o.outOfOrder, o.repeated, chart)
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
	owned [][]progress.Point // by partition: the number of its owner, 0 without one
	marks []progress.Series
}

func (w *witness) watch(ctx context.Context) {
	for ctx.Err() == nil {
		if all, err := w.set.Status(ctx); err == nil {
			w.mu.Lock()
			for _, p := range all {
				y := 0.0
				for i, name := range names {
					if p.Member == name {
						y = float64(i + 1)
					}
				}
				w.owned[p.Number] = append(w.owned[p.Number], progress.Point{X: time.Since(w.begin).Seconds(), Y: y + 0.07*float64(p.Number)})
			}
			w.mu.Unlock()
		}
		pause(ctx, 50*time.Millisecond)
	}
}

func (w *witness) mark(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	x := time.Since(w.begin).Seconds()
	w.marks = append(w.marks, progress.Series{Name: what, Dashed: true, Points: []progress.Point{{X: x}, {X: x, Y: float64(len(names)) + 0.6}}})
}

func (w *witness) draw(path string) error {
	c := progress.Chart{Title: "Who owns each partition", XTitle: "seconds", YTitle: "0 nobody, 1 " + strings.Join([]string{names[0], "2 " + names[1], "3 " + names[2]}, ", ")}
	for n, points := range w.owned {
		c.Series = append(c.Series, progress.Series{Name: fmt.Sprint(n), Step: true, Points: points})
	}
	c.Series = append(c.Series, w.marks...)
	return progress.SaveChart(path, c)
}
