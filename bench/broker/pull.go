package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// pullCase is a number of workers with one way to work; a consumer of its own
// gives it a job for each message.
type pullCase struct {
	consumer, style string
	workers         int
	requests        int // that a job takes of a worker alone; 0: less than one
	work            worker
	original        span
	wanted          string
}

// listed is the style of the original.
const listed = "queued-jobs"

func (c pullCase) name(style string) string {
	return fmt.Sprintf("pull, %d in parallel, %s", c.workers, style)
}

func pullCases() []pullCase {
	one, eight := span{339, 389}, span{116, 186}
	return []pullCase{
		{"listed1", listed, 1, 2, workListed, one, "70 % of the bare handler"},
		{"claimed1", "claim", 1, 1, workClaimed, one, "70 % of the bare handler"},
		{"paged1", "claim, completed by the page", 1, 0, workPaged, one, "×20"},
		{"listed8", listed, 8, 0, workListed, eight, "×20"},
		{"claimed8", "claim", 8, 0, workClaimed, eight, "×20, none twice"},
		{"paged8", "claim, completed by the page", 8, 0, workPaged, eight, "×20, none twice"},
	}
}

func benchPull(ctx context.Context, s settings, target string) ([]figure, error) {
	p, err := startBroker(ctx, target)
	if err != nil {
		return nil, err
	}
	defer p.close()
	cases := slices.DeleteFunc(pullCases(), func(c pullCase) bool {
		return s.pull != "" && s.pull != c.consumer || p.cmd == nil && c.style != listed
	})
	for _, c := range cases {
		if err := p.putConsumer(ctx, c.consumer, "pull", nowhere); err != nil {
			return nil, err
		}
	}
	if _, _, err := p.broadcast(ctx, s.messages, s.connections); err != nil {
		return nil, err
	}
	if err := p.settle(ctx); err != nil {
		return nil, err
	}
	var figures []figure
	for _, c := range cases {
		f := figure{name: c.name(c.style), unit: "/s", original: c.original, wanted: c.wanted, requests: c.requests}
		if c.style != listed {
			f.like = c.name(listed)
		}
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
