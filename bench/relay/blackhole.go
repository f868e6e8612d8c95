package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"time"
)

const (
	// holeRate is at how many messages a second each of the relays gets for the receiver that is measured, and half as
	// many for the other one.
	holeRate = 50
	holeTime = 40 * time.Second
)

// benchBlackHole measures the time to a response at two relays side by side, with the same load. At one of them the second
// receiver takes every request and never answers. Whatever else the machine does hits both alike, and who comes
// first changes with each message.
func benchBlackHole(ctx context.Context, s settings) ([]figure, error) {
	ctx, cancel := context.WithTimeout(ctx, caseTimeout)
	defer cancel()
	open := make(chan struct{})
	hole := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-open:
		case <-r.Context().Done():
		}
	}))
	defer hole.Close()
	defer close(open)
	answering := newCounter(-1)
	defer answering.Close()
	var took [2][]time.Duration
	var relays [2]*process
	for i, other := range []string{answering.URL, hole.URL} {
		p, err := startChild(ctx, s)
		if err != nil {
			return nil, err
		}
		defer p.close()
		for name, url := range map[string]string{"r0": answering.URL, "r1": other} {
			if err := p.call(ctx, http.MethodPut, "/v1/receivers/"+name, fmt.Appendf(nil, `{"post_endpoint":%q}`, url), nil); err != nil {
				return nil, err
			}
		}
		// A backlog for the second one, so that all of its workers are busy from the start.
		if err := p.send(ctx, crowd{sources: few.sources, receivers: 2}, 0, batchSize); err != nil {
			return nil, err
		}
		relays[i] = p
	}
	n := int(holeTime.Seconds() * holeRate)
	errs := make([][2]error, n)
	for i := range took {
		took[i] = make([]time.Duration, n)
	}
	ticker := time.NewTicker(time.Second / holeRate)
	defer ticker.Stop()
	var wg sync.WaitGroup
	for i := range n {
		<-ticker.C
		wg.Go(func() {
			for turn := range relays {
				which := (i + turn) % len(relays)
				errs[i][which] = relays[which].timed(ctx, batchSize+2*i, &took[which][i])
			}
		})
	}
	wg.Wait()
	for _, both := range errs {
		for _, err := range both {
			if err != nil {
				return nil, err
			}
		}
	}
	for i := range took {
		slices.Sort(took[i])
	}
	p50, p99 := n/2, n*99/100
	return []figure{
		{"response, p50 without a black hole, ms", ms(took[0][p50])}, {"response, p50 beside a black hole, ms", ms(took[1][p50])},
		{"response, p99 without a black hole, ms", ms(took[0][p99])}, {"response, p99 beside a black hole, ms", ms(took[1][p99])},
		{"p99 beside it, % of that without", 100 * float64(took[1][p99]) / float64(took[0][p99])},
	}, nil
}

// timed sends an even message and measures the time to its response; every other time it first sends one for the second
// receiver.
func (p *process) timed(ctx context.Context, i int, took *time.Duration) error {
	both := crowd{sources: few.sources, receivers: 2}
	if i%4 == 0 {
		if err := p.call(ctx, http.MethodPost, "/v1/messages", both.line(i+1), nil); err != nil {
			return err
		}
	}
	begin := time.Now()
	err := p.call(ctx, http.MethodPost, "/v1/messages?wait=30s", both.line(i), nil)
	*took = time.Since(begin)
	return err
}
