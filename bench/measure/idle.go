package measure

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// IdleName is the name by which Consumes with nothing to do are selected.
const IdleName = "idle"

// IdlePlan is a number of Consumes on one connection, each on a consumer of its own. Each has handled that many messages
// before it became idle.
type IdlePlan struct {
	Subscriptions int `json:"subscriptions"`
	Handled       int `json:"handled"`
}

// The plans. A few Consumes are measured together because a mean of them is steadier than the figure of one.
var (
	IdleFew   = IdlePlan{Subscriptions: 10}
	IdleAfter = IdlePlan{Subscriptions: 10, Handled: 6_000}
	IdleMany  = IdlePlan{Subscriptions: 1_000}
	idlePlans = []IdlePlan{IdleFew, IdleAfter, IdleMany}
)

const (
	idleSetUp        = 2 * time.Minute
	idleSteady       = 100 * time.Millisecond // goroutine count unchanged for so long means set-up is over
	idleSteadyChecks = 5
)

// IdleResult is what the Consumes of a plan cost one process, beyond what it needs without them.
type IdleResult struct {
	Contender string `json:"contender"`
	Ours      bool   `json:"ours"`
	IdlePlan
	Goroutines int     `json:"goroutines"`
	Heap       int64   `json:"heap_bytes"` // live
	Stacks     int64   `json:"stack_bytes"`
	CPU        float64 `json:"cpu"`            // of one core
	Requests   float64 `json:"requests_per_s"` // messages the client sent
	Frames     float64 `json:"frames_per_s"`   // messages the server sent
}

// idleContender starts one Consume that calls handled for each message; stop ends it and waits for it.
type idleContender struct {
	name  string
	ours  bool
	start func(ctx context.Context, js jetstream.JetStream, t *Turn, handled func()) (stop func() error, err error)
}

var idleContenders = []idleContender{
	{name: oursName, ours: true, start: oursIdle},
	{name: rivalConsume, start: natsIdle},
}

func natsIdle(ctx context.Context, js jetstream.JetStream, t *Turn, handled func()) (func() error, error) {
	c, err := js.Consumer(ctx, t.Stream, t.Consumer)
	if err != nil {
		return nil, err
	}
	running, err := c.Consume(func(m jetstream.Msg) {
		_ = m.Ack()
		handled()
	})
	if err != nil {
		return nil, err
	}
	return func() error {
		running.Stop()
		<-running.Closed()
		return nil
	}, nil
}

// Idle measures each contender with each plan, one after the other: memory and CPU time are those of the whole process.
func (r *Runner) Idle(ctx context.Context, window time.Duration) ([]IdleResult, error) {
	var results []IdleResult
	for _, contender := range idleContenders {
		for _, plan := range idlePlans {
			result, err := r.idleTurn(ctx, &contender, plan, window)
			if err != nil {
				return nil, fmt.Errorf("case %s, %s: %w", IdleName, contender.name, err)
			}
			results = append(results, result)
			r.Progress.Add(1)
		}
	}
	return results, nil
}

func (r *Runner) idleTurn(ctx context.Context, contender *idleContender, plan IdlePlan, window time.Duration) (IdleResult, error) {
	result := IdleResult{Contender: contender.name, Ours: contender.ours, IdlePlan: plan}
	js, err := r.links.Direct.again("bench-idle")
	if err != nil {
		return result, err
	}
	conn := js.Conn()
	defer conn.Close()
	// The first Consume with traffic sets up what the whole connection shares, such as buffers.
	first := &idleGroup{runner: r, js: js, start: contender.start}
	if err := errors.Join(first.open(ctx, IdlePlan{1, IdleAfter.Handled}), first.close(ctx)); err != nil {
		return result, err
	}
	before := footprint(ctx)
	group := &idleGroup{runner: r, js: js, start: contender.start}
	if err := group.open(ctx, plan); err != nil {
		return result, errors.Join(err, group.close(ctx))
	}
	steadyGoroutines(ctx)
	sent, cpu, began := conn.Stats(), processCPU(), time.Now()
	select {
	case <-time.After(window):
	case <-ctx.Done():
		return result, errors.Join(context.Cause(ctx), group.close(context.WithoutCancel(ctx)))
	}
	seconds := time.Since(began).Seconds()
	result.CPU = (processCPU() - cpu).Seconds() / seconds
	now := conn.Stats()
	result.Requests = float64(now.OutMsgs-sent.OutMsgs) / seconds
	result.Frames = float64(now.InMsgs-sent.InMsgs) / seconds
	after := footprint(ctx)
	result.Goroutines = after.goroutines - before.goroutines
	result.Heap, result.Stacks = after.heap-before.heap, after.stacks-before.stacks
	return result, group.close(ctx)
}

// idleGroup is the Consumes of a plan.
type idleGroup struct {
	runner *Runner
	js     jetstream.JetStream
	start  func(context.Context, jetstream.JetStream, *Turn, func()) (func() error, error)
	turns  []*Turn
	stops  []func() error
}

// open starts the Consumes and returns when each has handled the plan's messages.
func (g *idleGroup) open(ctx context.Context, plan IdlePlan) error {
	ctx, cancel := context.WithTimeoutCause(ctx, idleSetUp, fmt.Errorf("not idle after %v", idleSetUp))
	defer cancel()
	stream, err := g.runner.prefilled(ctx, plan.Handled)
	if err != nil {
		return err
	}
	left := atomic.Int64{}
	left.Store(int64(plan.Subscriptions * plan.Handled))
	done := make(chan struct{})
	if plan.Handled == 0 {
		close(done)
	}
	for range plan.Subscriptions {
		t := &Turn{Stream: stream}
		if t.Consumer, err = g.runner.freshConsumer(ctx, stream, jetstream.ConsumerConfig{MemoryStorage: true}); err != nil {
			return err
		}
		g.turns = append(g.turns, t)
		// The Consume outlives this call.
		stop, err := g.start(context.WithoutCancel(ctx), g.js, t, func() {
			if left.Add(-1) == 0 {
				close(done)
			}
		})
		if err != nil {
			return err
		}
		g.stops = append(g.stops, stop)
	}
	select {
	case <-done:
		return g.js.Conn().FlushWithContext(ctx)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// close stops the Consumes and deletes their consumers: a server takes no more than 1,000 on one stream unless its
// configuration says so.
func (g *idleGroup) close(ctx context.Context) error {
	var errs []error
	for _, stop := range g.stops {
		errs = append(errs, stop())
	}
	for _, t := range g.turns {
		errs = append(errs, g.runner.links.Direct.DeleteConsumer(ctx, t.Stream, t.Consumer))
	}
	return errors.Join(errs...)
}

// memory is what the process has in use.
type memory struct {
	goroutines   int
	heap, stacks int64
}

// footprint returns what the process needs once its goroutines are steady.
func footprint(ctx context.Context) memory {
	goroutines := steadyGoroutines(ctx)
	runtime.GC()
	runtime.GC() // a pool frees its values only at the second collection
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return memory{goroutines, int64(stats.HeapAlloc), int64(stats.StackInuse)}
}

// steadyGoroutines waits until no goroutine starts or ends any more and returns their number.
func steadyGoroutines(ctx context.Context) int {
	tick := time.NewTicker(idleSteady)
	defer tick.Stop()
	goroutines := runtime.NumGoroutine()
	for same := 0; same < idleSteadyChecks && ctx.Err() == nil; {
		<-tick.C
		now := runtime.NumGoroutine()
		if now == goroutines {
			same++
			continue
		}
		goroutines, same = now, 0
	}
	return goroutines
}
