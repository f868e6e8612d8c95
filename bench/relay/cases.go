package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// caseTimeout bounds one case.
	caseTimeout = 20 * time.Minute
	batchSize   = 500
	connections = 8
	// steadyRate and steadyTime are of the latency at a steady rate.
	steadyRate = 100
	steadyTime = 5 * time.Second
)

type figure struct {
	name  string
	value float64
}

var cases = []struct {
	name string
	run  func(context.Context, settings) ([]figure, error)
}{
	{"naive", benchNaive},
	{"one-way", benchOneWay},
	{"round-trip", benchRoundTrip},
	{"steady", benchSteady},
	{"redrive", benchRedrive},
	{"fleet", benchFleet},
	{"pending", benchPending},
	{"black-hole", benchBlackHole},
}

// crowd is among how many sources and receivers messages are spread.
type crowd struct{ sources, receivers int }

var few = crowd{sources: 200, receivers: 4}

// counter is an HTTP server that counts requests and answers them at once.
type counter struct {
	*httptest.Server
	code atomic.Int64
	n    atomic.Int64
	want int64
	done chan struct{}
}

func newCounter(want int) *counter {
	c := &counter{want: int64(want), done: make(chan struct{})}
	c.code.Store(http.StatusOK)
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.WriteHeader(int(c.code.Load()))
		_, _ = io.WriteString(w, `{"ok":true}`)
		if c.n.Add(1) == c.want {
			close(c.done)
		}
	}))
	return c
}

func (c *counter) wait(ctx context.Context) error {
	select {
	case <-c.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%d of %d requests came: %w", c.n.Load(), c.want, ctx.Err())
	}
}

// receivers makes the receivers of a crowd, all at one URL.
func (p *process) receivers(ctx context.Context, c crowd, url string, paused bool) error {
	for i := range c.receivers {
		body := fmt.Appendf(nil, `{"post_endpoint":%q,"max_retries":0,"paused":%t}`, url, paused)
		if err := p.call(ctx, http.MethodPut, fmt.Sprintf("/v1/receivers/r%d", i), body, nil); err != nil {
			return err
		}
	}
	return nil
}

var payload = bytes.Repeat([]byte("x"), 480)

func (c crowd) line(i int) []byte {
	return fmt.Appendf(nil, `{"source_id":"s%d","message_id":"m%d","receiver":"r%d","payload":{"text":%q}}`+"\n", i%c.sources, i, i%c.receivers, payload)
}

// send hands in the messages from a number to another in batches over several connections.
func (p *process) send(ctx context.Context, c crowd, from, n int) error {
	var next atomic.Int64
	next.Store(int64(from))
	var failed atomic.Pointer[error]
	var wg sync.WaitGroup
	for range connections {
		wg.Go(func() {
			for failed.Load() == nil {
				begin := int(next.Add(batchSize)) - batchSize
				if begin >= n {
					return
				}
				var body []byte
				for i := begin; i < min(n, begin+batchSize); i++ {
					body = append(body, c.line(i)...)
				}
				err := p.call(ctx, http.MethodPost, "/v1/messages:batch", body, nil)
				for errors.Is(err, errUnavailable) {
					// As a sender does: what is there already is known.
					err = p.call(ctx, http.MethodPost, "/v1/messages:batch", body, nil)
				}
				if err != nil {
					failed.Store(&err)
				}
			}
		})
	}
	wg.Wait()
	if err := failed.Load(); err != nil {
		return *err
	}
	return nil
}

// through measures from the first message that is handed in to the last request that arrives at the end.
func through(ctx context.Context, s settings, callback bool) (rate, processor, memory float64, err error) {
	ctx, cancel := context.WithTimeout(ctx, caseTimeout)
	defer cancel()
	p, err := startChild(ctx, s)
	if err != nil {
		return 0, 0, 0, err
	}
	defer p.close()
	receiver, sender := newCounter(s.messages), newCounter(s.messages)
	defer receiver.Close()
	defer sender.Close()
	if err := p.receivers(ctx, few, receiver.URL, false); err != nil {
		return 0, 0, 0, err
	}
	last := receiver
	if callback {
		last = sender
		body := fmt.Appendf(nil, `{"callback_endpoint":%q,"token":"t","sources":[""]}`, sender.URL)
		if err := p.call(ctx, http.MethodPut, "/v1/senders/s", body, nil); err != nil {
			return 0, 0, 0, err
		}
	}
	before, err := p.processor()
	if err != nil {
		return 0, 0, 0, err
	}
	begin := time.Now()
	if err := p.send(ctx, few, 0, s.messages); err != nil {
		return 0, 0, 0, err
	}
	if err := last.wait(ctx); err != nil {
		return 0, 0, 0, err
	}
	rate = float64(s.messages) / time.Since(begin).Seconds()
	after, err := p.processor()
	if err != nil {
		return 0, 0, 0, err
	}
	memory, err = p.memory()
	return rate, perMessage(after-before, s.messages), memory, err
}

func perMessage(d time.Duration, n int) float64 { return float64(d.Microseconds()) / float64(n) }

func benchOneWay(ctx context.Context, s settings) ([]figure, error) {
	rate, processor, memory, err := through(ctx, s, false)
	return []figure{{"one way, messages/s", rate}, {"one way, processor time of a message, µs", processor}, {"memory after it, MB", memory}}, err
}

func benchRoundTrip(ctx context.Context, s settings) ([]figure, error) {
	rate, processor, _, err := through(ctx, s, true)
	return []figure{{"round trips/s", rate}, {"round trip, processor time, µs", processor}}, err
}

// benchSteady measures how long a sender waits for the response at a steady rate.
func benchSteady(ctx context.Context, s settings) ([]figure, error) {
	ctx, cancel := context.WithTimeout(ctx, caseTimeout)
	defer cancel()
	p, err := startChild(ctx, s)
	if err != nil {
		return nil, err
	}
	defer p.close()
	receiver := newCounter(-1)
	defer receiver.Close()
	if err := p.receivers(ctx, few, receiver.URL, false); err != nil {
		return nil, err
	}
	n := int(steadyTime.Seconds() * steadyRate)
	took := make([]time.Duration, n)
	errs := make([]error, n)
	ticker := time.NewTicker(time.Second / steadyRate)
	defer ticker.Stop()
	var wg sync.WaitGroup
	for i := range n {
		<-ticker.C
		wg.Go(func() {
			begin := time.Now()
			errs[i] = p.call(ctx, http.MethodPost, "/v1/messages?wait=30s", few.line(i), nil)
			took[i] = time.Since(begin)
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	slices.Sort(took)
	return []figure{{"response at 100/s, p50, ms", ms(took[n/2])}, {"response at 100/s, p99, ms", ms(took[n*99/100])}}, nil
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// benchRedrive measures from the request to the last POST.
func benchRedrive(ctx context.Context, s settings) ([]figure, error) {
	ctx, cancel := context.WithTimeout(ctx, caseTimeout)
	defer cancel()
	p, err := startChild(ctx, s)
	if err != nil {
		return nil, err
	}
	defer p.close()
	receiver := newCounter(2 * s.failed)
	defer receiver.Close()
	receiver.code.Store(http.StatusBadRequest)
	if err := p.receivers(ctx, few, receiver.URL, false); err != nil {
		return nil, err
	}
	if err := p.send(ctx, few, 0, s.failed); err != nil {
		return nil, err
	}
	var dry struct{ Matched int }
	for dry.Matched < s.failed {
		if err := p.call(ctx, http.MethodPost, "/v1/failed:redrive", []byte(`{"filter":{},"dry_run":true}`), &dry); err != nil {
			return nil, err
		}
	}
	receiver.code.Store(http.StatusOK)
	before, err := p.processor()
	if err != nil {
		return nil, err
	}
	begin := time.Now()
	if err := p.call(ctx, http.MethodPost, "/v1/failed:redrive", []byte(`{"filter":{}}`), nil); err != nil {
		return nil, err
	}
	if err := receiver.wait(ctx); err != nil {
		return nil, err
	}
	rate := float64(s.failed) / time.Since(begin).Seconds()
	after, err := p.processor()
	return []figure{{"redrive to the POST, messages/s", rate}, {"redrive, processor time of a message, µs", perMessage(after-before, s.failed)}}, err
}
