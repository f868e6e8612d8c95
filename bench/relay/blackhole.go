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

// pair has the receiver that is measured for even messages, and the other one for odd ones.
var pair = crowd{sources: few.sources, receivers: 2}

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
	var relays [2]*process
	for i := range relays {
		p, err := startChild(ctx, s)
		if err != nil {
			return nil, err
		}
		relays[i] = p
	}
	defer relays[0].close()
	defer relays[1].close()
	for i, other := range []string{answering.URL, hole.URL} {
		if err := relays[i].beside(ctx, answering.URL, other); err != nil {
			return nil, err
		}
	}
	took, err := sideBySide(ctx, relays)
	if err != nil {
		return nil, err
	}
	n := len(took[0])
	p50, p99 := n/2, n*99/100
	return []figure{
		{"response, p50 without a black hole, ms", ms(took[0][p50])},
		{"response, p50 beside a black hole, ms", ms(took[1][p50])},
		{"response, p99 without a black hole, ms", ms(took[0][p99])},
		{"response, p99 beside a black hole, ms", ms(took[1][p99])},
		{"p99 beside it, % of that without", 100 * float64(took[1][p99]) / float64(took[0][p99])},
	}, nil
}

// beside makes the receiver that is measured and the other one, with a backlog for the other one, so that all of its
// workers are busy from the start.
func (p *process) beside(ctx context.Context, measured, other string) error {
	for name, url := range map[string]string{"r0": measured, "r1": other} {
		if err := p.call(ctx, http.MethodPut, "/v1/receivers/"+name, fmt.Appendf(nil, `{"post_endpoint":%q}`, url), nil); err != nil {
			return err
		}
	}
	return p.send(ctx, pair, 0, batchSize)
}

// sideBySide measures, in the same order, the times to the response at each relay.
func sideBySide(ctx context.Context, relays [2]*process) (took [2][]time.Duration, err error) {
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
				return took, err
			}
		}
	}
	for i := range took {
		slices.Sort(took[i])
	}
	return took, nil
}

// timed sends an even message and measures the time to its response; every other time it first sends one for the second
// receiver.
func (p *process) timed(ctx context.Context, i int, took *time.Duration) error {
	if i%4 == 0 {
		if err := p.call(ctx, http.MethodPost, "/v1/messages", pair.line(i+1), nil); err != nil {
			return err
		}
	}
	begin := time.Now()
	err := p.call(ctx, http.MethodPost, "/v1/messages?wait=30s", pair.line(i), nil)
	*took = time.Since(begin)
	return err
}
