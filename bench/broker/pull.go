package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

func benchPull(ctx context.Context, s settings, sync string) ([]figure, error) {
	p, err := startBroker(ctx, sync)
	if err != nil {
		return nil, err
	}
	defer p.close()
	for _, id := range []string{"listed1", "claimed1", "paged1", "listed8", "claimed8", "paged8"} {
		if err := p.putConsumer(ctx, id, "pull", nowhere); err != nil {
			return nil, err
		}
	}
	if _, _, err := p.broadcast(ctx, s.messages, s.connections); err != nil {
		return nil, err
	}
	var figures []figure
	one, eight := span{339, 389}, span{116, 186}
	for _, c := range []struct {
		consumer, style string
		workers         int
		work            worker
		original        span
		wanted          string
	}{
		{"listed1", "queued-jobs", 1, workListed, one, "×10"},
		{"claimed1", "claim", 1, workClaimed, one, "×10"},
		{"paged1", "claim, completed by the page", 1, workPaged, one, "×10"},
		{"listed8", "queued-jobs", 8, workListed, eight, "×20"},
		{"claimed8", "claim", 8, workClaimed, eight, "×20, none twice"},
		{"paged8", "claim, completed by the page", 8, workPaged, eight, "×20, none twice"},
	} {
		if s.pull != "" && s.pull != c.consumer {
			continue
		}
		f := figure{name: fmt.Sprintf("pull, %d in parallel, %s", c.workers, c.style), unit: "/s", original: c.original, wanted: c.wanted}
		started, total, err := p.work(ctx, c.workers, c.consumer, c.work)
		if err != nil {
			return figures, fmt.Errorf("%s: %w", f.name, err)
		}
		f.value = perSecond(s.messages, total)
		if started != s.messages {
			f.note = fmt.Sprintf("%d started for %d", started, s.messages)
		}
		figures = append(figures, f)
	}
	return figures, nil
}

// worker works off one page of a consumer's jobs and tells how many there were
// and how many of them it was let start.
type worker func(c *conn, consumer string) (listed, started int, err error)

// work runs a number of workers until there is nothing left for any of them.
func (p *process) work(ctx context.Context, workers int, consumer string, one worker) (started int, total time.Duration, err error) {
	var wg sync.WaitGroup
	var mu sync.Mutex
	begin := time.Now()
	for range workers {
		wg.Go(func() {
			n, workErr := p.workAll(ctx, consumer, one)
			mu.Lock()
			defer mu.Unlock()
			started += n
			err = errors.Join(err, workErr)
		})
	}
	wg.Wait()
	return started, time.Since(begin), err
}

func (p *process) workAll(ctx context.Context, consumer string, one worker) (started int, err error) {
	c, err := p.dial(ctx)
	if err != nil {
		return 0, err
	}
	defer c.close()
	for {
		listed, n, err := one(c, consumer)
		started += n
		if listed == 0 || err != nil {
			return started, err
		}
	}
}

// workListed does a page in the original's way: list, then in flight and
// delivered for each, one after the other. With several workers a job may be
// somebody else's by then. A worker learns that only if the other has completed
// it: then it is refused, and goes on to the next.
func workListed(c *conn, consumer string) (listed, started int, err error) {
	jobs, err := c.jobs("GET", consumer, "/queued-jobs?limit=100")
	if err != nil {
		return 0, 0, err
	}
	for _, j := range jobs {
		mine, err := c.transition(consumer, j, "INFLIGHT")
		if err == nil && mine {
			started++
			_, err = c.transition(consumer, j, "DELIVERED")
		}
		if err != nil {
			return len(jobs), started, err
		}
	}
	return len(jobs), started, nil
}

// workClaimed claims a page and completes each job.
func workClaimed(c *conn, consumer string) (listed, started int, err error) {
	jobs, err := c.jobs("POST", consumer, "/claim?limit=100")
	if err != nil {
		return 0, 0, err
	}
	for _, j := range jobs {
		mine, err := c.transition(consumer, j, "DELIVERED")
		if err != nil {
			return len(jobs), started, err
		}
		if !mine {
			return len(jobs), started, fmt.Errorf("job %s was claimed, and refused to be delivered", j.ID)
		}
		started++
	}
	return len(jobs), started, nil
}

// workPaged claims a page and completes it in one request.
func workPaged(c *conn, consumer string) (listed, started int, err error) {
	jobs, err := c.jobs("POST", consumer, "/claim?limit=100")
	if err != nil || len(jobs) == 0 {
		return 0, 0, err
	}
	return len(jobs), len(jobs), c.deliver(consumer, jobs)
}
