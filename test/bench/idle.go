package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// idleName is the name by which the idle case is selected.
const idleName = "idle"

// idleSizes are the numbers of subscriptions whose cost is compared.
var idleSizes = []int{1, 100, 1_000}

const (
	idleSetUp        = 2 * time.Minute
	idleSteady       = 100 * time.Millisecond // goroutine count unchanged for so long means set-up is over
	idleSteadyChecks = 5
)

// IdleResult is what subscriptions with nothing to do cost one process.
type IdleResult struct {
	Contender     string  `json:"contender"`
	Ours          bool    `json:"ours"`
	Subscriptions int     `json:"subscriptions"`
	Goroutines    int     `json:"goroutines"`     // more than before the subscriptions
	Memory        int64   `json:"memory_bytes"`   // live heap and stacks, more than before
	Requests      float64 `json:"requests_per_s"` // messages the client sent
	Frames        float64 `json:"frames_per_s"`   // messages the server sent
}

// idleContender starts one subscription with a handler; stop ends it and waits for it.
type idleContender struct {
	name  string
	ours  bool
	start func(ctx context.Context, js jetstream.JetStream, stream, consumer string) (stop func() error, err error)
}

var idleContenders = []idleContender{
	{name: oursName, ours: true, start: oursIdle},
	{name: rivalConsume, start: natsIdle},
}

func natsIdle(ctx context.Context, js jetstream.JetStream, stream, consumer string) (func() error, error) {
	c, err := js.Consumer(ctx, stream, consumer)
	if err != nil {
		return nil, err
	}
	running, err := c.Consume(func(m jetstream.Msg) { _ = m.Ack() })
	if err != nil {
		return nil, err
	}
	return func() error {
		running.Stop()
		<-running.Closed()
		return nil
	}, nil
}

// idleGroup is one connection with a number of subscriptions, each on a consumer of its own.
type idleGroup struct {
	conn   *nats.Conn
	stops  []func() error
	result IdleResult
	before nats.Statistics
}

// Idle measures every contender at every size. Goroutines and memory are taken one size after the other; the traffic of
// all sizes is then counted over one window, each on its own connection.
func (r *Runner) Idle(ctx context.Context, window time.Duration) ([]IdleResult, error) {
	if err := r.idleConsumers(ctx); err != nil {
		return nil, err
	}
	var results []IdleResult
	for _, contender := range idleContenders {
		r.progress.Turn(idleName, contender.name, 1)
		got, err := r.idleTurn(ctx, &contender, window)
		if err != nil {
			return nil, fmt.Errorf("case %s, %s: %w", idleName, contender.name, err)
		}
		results = append(results, got...)
	}
	return results, nil
}

// idleConsumers creates an empty stream for each size with that many consumers: a server takes no more than 1,000 on
// one stream unless told to.
func (r *Runner) idleConsumers(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, idleSetUp)
	defer cancel()
	for _, size := range idleSizes {
		config := jetstream.StreamConfig{Name: idleStream(size), Subjects: []string{fmt.Sprintf("bench.idle.%d", size)}}
		stream, err := r.js.CreateStream(ctx, config)
		if err != nil {
			return fmt.Errorf("create stream %s: %w", config.Name, err)
		}
		for i := range size {
			config := jetstream.ConsumerConfig{Durable: idleConsumer(i), MemoryStorage: true}
			if _, err := stream.CreateConsumer(ctx, config); err != nil {
				return fmt.Errorf("create consumer %s: %w", config.Durable, err)
			}
		}
	}
	return nil
}

func idleStream(size int) string { return fmt.Sprintf("BENCH_IDLE_%d", size) }

func idleConsumer(i int) string { return fmt.Sprintf("idle_%d", i) }

func (r *Runner) idleTurn(ctx context.Context, contender *idleContender, window time.Duration) ([]IdleResult, error) {
	var groups []*idleGroup
	defer func() {
		for _, g := range groups {
			g.conn.Close()
		}
	}()
	for _, size := range idleSizes {
		g, err := r.idleOpen(ctx, contender, size)
		if g != nil {
			groups = append(groups, g)
		}
		if err != nil {
			return nil, err
		}
	}
	for _, g := range groups {
		g.before = g.conn.Stats()
	}
	began := time.Now()
	select {
	case <-time.After(window):
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	seconds := time.Since(began).Seconds()
	results := make([]IdleResult, 0, len(groups))
	for _, g := range groups {
		after := g.conn.Stats()
		g.result.Requests = float64(after.OutMsgs-g.before.OutMsgs) / seconds
		g.result.Frames = float64(after.InMsgs-g.before.InMsgs) / seconds
		results = append(results, g.result)
		if err := g.stop(); err != nil {
			return nil, err
		}
	}
	return results, nil
}

func (g *idleGroup) stop() error {
	var errs []error
	for _, stop := range g.stops {
		errs = append(errs, stop())
	}
	return errors.Join(errs...)
}

// idleOpen starts size subscriptions on a new connection and takes what they added to the process.
func (r *Runner) idleOpen(ctx context.Context, contender *idleContender, size int) (*idleGroup, error) {
	conn, err := nats.Connect(r.servers.Direct, nats.Name("bench-idle"))
	if err != nil {
		return nil, err
	}
	g := &idleGroup{conn: conn}
	js, err := jetstream.New(conn)
	if err != nil {
		return g, err
	}
	// The first request on a connection sets up its reply subscription; that is not the subscriptions' cost.
	if _, err := js.AccountInfo(ctx); err != nil {
		return g, err
	}
	goroutines, memory := footprint(ctx)
	for i := range size {
		stop, err := contender.start(ctx, js, idleStream(size), idleConsumer(i))
		if err != nil {
			return g, err
		}
		g.stops = append(g.stops, stop)
	}
	if err := conn.FlushTimeout(flushTimeout); err != nil {
		return g, err
	}
	goroutinesNow, memoryNow := footprint(ctx)
	g.result = IdleResult{
		Contender: contender.name, Ours: contender.ours, Subscriptions: size,
		Goroutines: goroutinesNow - goroutines, Memory: memoryNow - memory,
	}
	return g, nil
}

// footprint waits until no goroutine comes or goes any more and then takes what the process holds.
func footprint(ctx context.Context) (goroutines int, memory int64) {
	tick := time.NewTicker(idleSteady)
	defer tick.Stop()
	goroutines = runtime.NumGoroutine()
	for same := 0; same < idleSteadyChecks && ctx.Err() == nil; {
		<-tick.C
		now := runtime.NumGoroutine()
		if now == goroutines {
			same++
			continue
		}
		goroutines, same = now, 0
	}
	runtime.GC()
	runtime.GC() // a pool gives up what it holds only at the second collection
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return goroutines, int64(stats.HeapAlloc + stats.StackInuse)
}
