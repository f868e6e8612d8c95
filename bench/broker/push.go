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

func benchPush(ctx context.Context, s settings, target string) ([]figure, error) {
	p, err := startBroker(ctx, target)
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
	return []figure{{
		name: fmt.Sprintf("push end to end, %d messages", s.messages),
		unit: "/s", value: perSecond(s.messages, time.Since(begin)), original: span{400, 423}, wanted: "×12",
	}}, nil
}

// benchSteady broadcasts 100 messages a second and takes the time from the
// start of the broadcast to the callback.
func benchSteady(ctx context.Context, _ settings, target string) ([]figure, error) {
	p, err := startBroker(ctx, target)
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
		header := p.producer()
		header.Set("X-Broker-Message-Id", id)
		mu.Lock()
		begun[id] = time.Now()
		mu.Unlock()
		wg.Go(func() {
			c := <-idle
			if _, err := c.expect(http.StatusCreated, "POST", p.channel()+"/broadcast", header, payload); err != nil {
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
	return []figure{
		latency("push at a steady 100/s, p50", took, 0.5, span{4.8, 4.8}, "2 ms"),
		latency("push at a steady 100/s, p99", took, 0.99, span{19, 19}, "10 ms"),
	}, nil
}
