package main

import (
	"context"
	"fmt"
	"time"
)

// nowhere is the callback of consumers that are not called.
const nowhere = "http://127.0.0.1:9/"

func benchBroadcast(ctx context.Context, s settings, target string) ([]figure, error) {
	p, err := startBroker(ctx, target)
	if err != nil {
		return nil, err
	}
	defer p.close()
	if err := p.putConsumer(ctx, "k", "pull", nowhere); err != nil {
		return nil, err
	}
	if _, _, err := p.broadcast(ctx, 500, s.connections); err != nil {
		return nil, err
	}
	n := 5 * s.messages
	took, total, err := p.broadcast(ctx, n, s.connections)
	if err != nil {
		return nil, err
	}
	name := fmt.Sprintf("broadcast, %d connections", s.connections)
	return []figure{
		{name: name, unit: "/s", value: perSecond(n, total), original: span{690, 715}, wanted: "×12"},
		latency(name+", p50", took, 0.5, span{40, 40}, ""),
		latency(name+", p99", took, 0.99, span{}, ""),
	}, p.settle(ctx)
}

func benchDepth(ctx context.Context, s settings, target string) ([]figure, error) {
	p, err := startBroker(ctx, target)
	if err != nil {
		return nil, err
	}
	defer p.close()
	if err := p.putConsumer(ctx, "k", "pull", nowhere); err != nil {
		return nil, err
	}
	var figures []figure
	depth := 0
	for _, c := range []struct {
		depth    int
		original float64
		wanted   string
	}{{1000, 1.7, "1 ms"}, {10_000, 14.8, ""}, {50_000, 92.7, ""}} {
		if _, _, err := p.broadcast(ctx, c.depth-depth, s.connections); err != nil {
			return figures, err
		}
		depth = c.depth
		if err := p.settle(ctx); err != nil {
			return figures, err
		}
		took, err := p.list(ctx)
		if err != nil {
			return figures, err
		}
		figures = append(figures, latency(fmt.Sprintf("queued-jobs at %d, p50", depth), took, 0.5, span{c.original, c.original}, c.wanted))
	}
	if p.cmd == nil {
		return figures, nil
	}
	memory, err := p.memory()
	return append(figures, figure{name: "memory, 50000 queued", unit: " MB", value: memory, original: span{337, 484}, wanted: "200 MB"}), err
}

// benchMillion also restarts the broker, which a store of a million messages
// shows best.
func benchMillion(ctx context.Context, s settings, target string) ([]figure, error) {
	const depth = 1_000_000
	p, err := startBroker(ctx, target)
	if err != nil {
		return nil, err
	}
	defer p.close()
	empty := p.up
	if err := p.putConsumer(ctx, "k", "pull", nowhere); err != nil {
		return nil, err
	}
	_, total, err := p.broadcast(ctx, depth, 4*s.connections)
	if err != nil {
		return nil, err
	}
	figures := []figure{
		{name: fmt.Sprintf("broadcast of a million, %d connections", 4*s.connections), unit: "/s", value: perSecond(depth, total)},
		{name: "start with nothing", unit: " s", value: empty.Seconds(), wanted: "2 s"},
	}
	before, err := p.atDepth(ctx, "with a million queued", "1 ms")
	if err != nil {
		return figures, err
	}
	figures = append(figures, before...)
	if err := p.stop(); err != nil {
		return figures, err
	}
	if err := p.start(ctx); err != nil {
		return figures, err
	}
	figures = append(figures, figure{name: "start with a million queued", unit: " s", value: p.up.Seconds()})
	after, err := p.atDepth(ctx, "after that start", "")
	if err != nil {
		return figures, err
	}
	if err := p.kill(); err != nil {
		return figures, err
	}
	if err := p.start(ctx); err != nil {
		return figures, err
	}
	return append(append(figures, after...), figure{name: "start with a million queued, after kill -9", unit: " s", value: p.up.Seconds()}), nil
}

// atDepth measures a broker that has much.
func (p *process) atDepth(ctx context.Context, when, wanted string) ([]figure, error) {
	took, err := p.list(ctx)
	if err != nil {
		return nil, err
	}
	memory, err := p.memory()
	return []figure{
		latency("queued-jobs "+when+", p50", took, 0.5, span{}, wanted),
		{name: "memory " + when, unit: " MB", value: memory},
	}, err
}

// queued-jobs is timed this often, or for this long where it is slow.
const (
	lists    = 500
	listTime = 5 * time.Second
)

// list times queued-jobs.
func (p *process) list(ctx context.Context) ([]time.Duration, error) {
	c, err := p.dial(ctx)
	if err != nil {
		return nil, err
	}
	defer c.close()
	var took []time.Duration
	for first := time.Now(); len(took) < lists && time.Since(first) < listTime; {
		begin := time.Now()
		if _, err := c.jobs("GET", "k", "/queued-jobs"); err != nil {
			return nil, err
		}
		took = append(took, time.Since(begin))
	}
	return took, nil
}
