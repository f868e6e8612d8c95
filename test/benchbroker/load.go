package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// payload is the body of every message.
var payload = bytes.Repeat([]byte("x"), 512)

var client = &http.Client{
	Transport: &http.Transport{MaxIdleConnsPerHost: 256},
	Timeout:   time.Minute,
}

var (
	tokens   = http.Header{"X-Broker-Channel-Token": {"ct"}, "X-Broker-Consumer-Token": {"kt"}}
	producer = http.Header{"X-Broker-Channel-Token": {"ct"}, "X-Broker-Producer-Id": {"pr"}, "X-Broker-Producer-Token": {"pt"}, "Content-Type": {"text/plain"}}
)

// call makes one request and checks its status.
func call(ctx context.Context, method, url string, header http.Header, body []byte, want int) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header = header
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != want {
		return nil, fmt.Errorf("%s %s: status %d: %s", method, url, resp.StatusCode, answer)
	}
	return answer, nil
}

func (p *process) putConsumer(ctx context.Context, id, kind, callback string) error {
	form := url.Values{"token": {"kt"}, "type": {kind}, "callbackUrl": {callback}}.Encode()
	_, err := call(ctx, "PUT", p.url+"/channel/ch/consumer/"+id,
		http.Header{"Content-Type": {"application/x-www-form-urlencoded"}}, []byte(form), http.StatusOK)
	return err
}

// broadcast sends n messages over a number of connections and returns the time
// that each took.
func (p *process) broadcast(ctx context.Context, n, connections int) (took []time.Duration, total time.Duration, err error) {
	took = make([]time.Duration, n)
	var next atomic.Int64
	var failed atomic.Pointer[error]
	var wg sync.WaitGroup
	begin := time.Now()
	for range connections {
		wg.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= n || failed.Load() != nil {
					return
				}
				start := time.Now()
				if _, err := call(ctx, "POST", p.url+"/channel/ch/broadcast", producer, payload, http.StatusCreated); err != nil {
					failed.Store(&err)
					return
				}
				took[i] = time.Since(start)
			}
		})
	}
	wg.Wait()
	total = time.Since(begin)
	if e := failed.Load(); e != nil {
		err = *e
	}
	return took, total, err
}

// queued is an item of queued-jobs or claim.
type queued struct {
	ID         string
	ClaimToken string
}

func (p *process) jobs(ctx context.Context, method, consumer, query string) ([]queued, error) {
	b, err := call(ctx, method, p.url+"/channel/ch/consumer/"+consumer+query, tokens, nil, http.StatusOK)
	if err != nil {
		return nil, err
	}
	var list struct{ Result []queued }
	return list.Result, json.Unmarshal(b, &list)
}

func (p *process) transition(ctx context.Context, consumer string, job queued, state string, want int) error {
	body := `{"NextState":"` + state + `","ClaimToken":"` + job.ClaimToken + `"}`
	_, err := call(ctx, "POST", p.url+"/channel/ch/consumer/"+consumer+"/job/"+job.ID, tokens, []byte(body), want)
	return err
}

// percentiles formats the middle and the end of a distribution.
func percentiles(took []time.Duration) string {
	sorted := slices.Sorted(slices.Values(took))
	if len(sorted) == 0 {
		return "nothing"
	}
	at := func(q float64) time.Duration { return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))] }
	return fmt.Sprintf("p50 %s, p99 %s", short(at(0.5)), short(at(0.99)))
}

func short(d time.Duration) string {
	return strings.TrimSuffix(strconv.FormatFloat(float64(d.Microseconds())/1000, 'f', 2, 64), ".00") + " ms"
}

func perSecond(n int, d time.Duration) float64 { return float64(n) / d.Seconds() }

// ratio compares a rate with the range of the original's.
func ratio(ours, low, high float64) string {
	return fmt.Sprintf("×%.1f to ×%.1f", ours/high, ours/low)
}
