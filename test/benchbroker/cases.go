package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"time"
)

// nowhere is the callback of consumers that are not called.
const nowhere = "http://127.0.0.1:9/"

func benchBroadcast(ctx context.Context, s settings, sync string) ([]row, error) {
	p, err := startBroker(ctx, sync)
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
	rate := perSecond(n, total)
	return []row{{
		fmt.Sprintf("broadcast, %d connections", s.connections),
		fmt.Sprintf("%.0f/s, %s (%s)", rate, percentiles(took), ratio(rate, 690, 715)), "690–715/s, p50 40 ms",
	}}, err
}

// receiver counts callbacks and the time since their broadcast began.
type receiver struct {
	srv   *httptest.Server
	count atomic.Int64
	want  int64
	done  chan struct{}
}

func newReceiver(want int) *receiver {
	r := &receiver{want: int64(want), done: make(chan struct{})}
	r.srv = httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		if r.count.Add(1) == r.want {
			close(r.done)
		}
	}))
	return r
}

func (r *receiver) wait(ctx context.Context) error {
	select {
	case <-r.done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(2 * time.Minute):
		return fmt.Errorf("only %d of %d callbacks came", r.count.Load(), r.want)
	}
}

func benchPush(ctx context.Context, s settings, sync string) ([]row, error) {
	p, err := startBroker(ctx, sync)
	if err != nil {
		return nil, err
	}
	defer p.close()
	r := newReceiver(s.messages)
	defer r.srv.Close()
	if err := p.putConsumer(ctx, "k", "push", r.srv.URL); err != nil {
		return nil, err
	}
	begin := time.Now()
	if _, _, err := p.broadcast(ctx, s.messages, s.connections); err != nil {
		return nil, err
	}
	if err := r.wait(ctx); err != nil {
		return nil, err
	}
	rate := perSecond(s.messages, time.Since(begin))
	return []row{{
		fmt.Sprintf("push end to end, %d messages", s.messages),
		fmt.Sprintf("%.0f/s (%s)", rate, ratio(rate, 400, 423)), "400–423/s",
	}}, nil
}

// benchSteady broadcasts 100 messages a second and takes the time from the
// start of the broadcast to the callback.
func benchSteady(ctx context.Context, _ settings, syncEvery string) ([]row, error) {
	p, err := startBroker(ctx, syncEvery)
	if err != nil {
		return nil, err
	}
	defer p.close()
	const n = 1000
	var mu sync.Mutex
	begun := make(map[string]time.Time, n)
	var took []time.Duration
	done := make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		now := time.Now()
		mu.Lock()
		defer mu.Unlock()
		took = append(took, now.Sub(begun[r.Header.Get("X-Broker-Message-Id")]))
		if len(took) == n {
			close(done)
		}
	}))
	defer srv.Close()
	if err := p.putConsumer(ctx, "k", "push", srv.URL); err != nil {
		return nil, err
	}
	idle, err := p.dialAll(ctx, 16) // enough that none is waited for
	if err != nil {
		return nil, err
	}
	var wg sync.WaitGroup
	var failed atomic.Pointer[error]
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for i := range n {
		<-ticker.C
		id := fmt.Sprintf("m%d", i)
		header := producer.Clone()
		header.Set("X-Broker-Message-Id", id)
		mu.Lock()
		begun[id] = time.Now()
		mu.Unlock()
		wg.Go(func() {
			c := <-idle
			if _, err := c.expect(http.StatusCreated, "POST", "/channel/ch/broadcast", header, payload); err != nil {
				failed.Store(&err)
			}
			idle <- c
		})
	}
	wg.Wait()
	if e := failed.Load(); e != nil {
		return nil, *e
	}
	select {
	case <-done:
	case <-time.After(time.Minute):
		return nil, errors.New("not all callbacks came")
	}
	mu.Lock()
	defer mu.Unlock()
	return []row{{"push at a steady 100/s", percentiles(took), "p50 4.8 ms, p99 19 ms"}}, nil
}

func benchPull(ctx context.Context, s settings, sync string) ([]row, error) {
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
	var rows []row
	for _, c := range []struct {
		style, consumer, original string
		workers                   int
		work                      worker
		low, high                 float64
	}{
		{"queued-jobs", "listed1", "339–389/s", 1, workListed, 339, 389},
		{"claim", "claimed1", "339–389/s", 1, workClaimed, 339, 389},
		{"claim, completed by the page", "paged1", "339–389/s", 1, workPaged, 339, 389},
		{"queued-jobs", "listed8", "116–186/s, thousands twice", 8, workListed, 116, 186},
		{"claim", "claimed8", "116–186/s, thousands twice", 8, workClaimed, 116, 186},
		{"claim, completed by the page", "paged8", "116–186/s, thousands twice", 8, workPaged, 116, 186},
	} {
		if s.pull != "" && s.pull != c.consumer {
			continue
		}
		name := fmt.Sprintf("pull, %d workers, %s", c.workers, c.style)
		started, total, err := p.work(ctx, c.workers, c.consumer, c.work)
		if err != nil {
			return rows, fmt.Errorf("%s: %w", name, err)
		}
		rate := perSecond(s.messages, total)
		rows = append(rows, row{name, fmt.Sprintf("%.0f jobs/s (%s), %d started for %d", rate, ratio(rate, c.low, c.high), started, s.messages), c.original})
	}
	return rows, nil
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

func benchDepth(ctx context.Context, s settings, sync string) ([]row, error) {
	p, err := startBroker(ctx, sync)
	if err != nil {
		return nil, err
	}
	defer p.close()
	if err := p.putConsumer(ctx, "k", "pull", nowhere); err != nil {
		return nil, err
	}
	var rows []row
	depth := 0
	for _, c := range []struct {
		depth    int
		original string
	}{{1000, "p50 1.7 ms"}, {10_000, "p50 14.8 ms"}, {50_000, "p50 92.7 ms"}} {
		if _, _, err := p.broadcast(ctx, c.depth-depth, s.connections); err != nil {
			return rows, err
		}
		depth = c.depth
		took, err := p.list(ctx, 500)
		if err != nil {
			return rows, err
		}
		rows = append(rows, row{fmt.Sprintf("queued-jobs at %d", depth), percentiles(took), c.original})
	}
	rows = append(rows, row{"memory at 50,000 queued", p.memory(), "53 MB + MariaDB 284–431 MB"})
	return rows, nil
}

// list times queued-jobs.
func (p *process) list(ctx context.Context, times int) ([]time.Duration, error) {
	c, err := p.dial(ctx)
	if err != nil {
		return nil, err
	}
	defer c.close()
	took := make([]time.Duration, times)
	for i := range took {
		begin := time.Now()
		if _, err := c.jobs("GET", "k", "/queued-jobs"); err != nil {
			return nil, err
		}
		took[i] = time.Since(begin)
	}
	return took, nil
}

func benchMillion(ctx context.Context, s settings, sync string) ([]row, error) {
	const depth = 1_000_000
	p, err := startBroker(ctx, sync)
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
	took, err := p.list(ctx, 500)
	if err != nil {
		return nil, err
	}
	rows := []row{
		{"1,000,000 broadcasts", fmt.Sprintf("%.0f/s", perSecond(depth, total)), ""},
		{"queued-jobs at 1,000,000", percentiles(took), ""},
		{"memory at 1,000,000 queued", p.memory(), ""},
		{"start with nothing", short(empty), ""},
	}
	if err := p.stop(); err != nil {
		return rows, err
	}
	if err := p.start(ctx); err != nil {
		return rows, err
	}
	rows = append(rows, row{"start with 1,000,000 queued", short(p.up), ""}, row{"memory after that start", p.memory(), ""})
	took, err = p.list(ctx, 500)
	return append(rows, row{"queued-jobs at 1,000,000 after a start", percentiles(took), ""}), err
}
