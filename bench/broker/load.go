package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"
)

// payload is the body of every message.
var payload = bytes.Repeat([]byte("x"), 512)

// token is that of every producer, channel and consumer.
const token = "bench"

var tokens = http.Header{"X-Broker-Channel-Token": {token}, "X-Broker-Consumer-Token": {token}}

// channel is the path of the channel.
func (p *process) channel() string { return "/channel/" + p.id }

// producer is what a broadcast needs.
func (p *process) producer() http.Header {
	return http.Header{"X-Broker-Channel-Token": {token}, "X-Broker-Producer-Id": {p.id}, "X-Broker-Producer-Token": {token}, "Content-Type": {"text/plain"}}
}

func (p *process) putConsumer(ctx context.Context, id, kind, callback string) error {
	return p.put(ctx, p.channel()+"/consumer/"+id, url.Values{"type": {kind}, "callbackUrl": {callback}})
}

// put registers what has the path.
func (p *process) put(ctx context.Context, path string, form url.Values) error {
	c, err := p.dial(ctx)
	if err != nil {
		return err
	}
	defer c.close()
	form.Set("token", token)
	_, err = c.expect(http.StatusOK, "PUT", path, http.Header{"Content-Type": {"application/x-www-form-urlencoded"}}, []byte(form.Encode()))
	return err
}

// broadcast sends n messages over a number of connections and returns the time
// that each took.
func (p *process) broadcast(ctx context.Context, n, connections int) (took []time.Duration, total time.Duration, err error) {
	took = make([]time.Duration, n)
	producer := p.producer()
	var next atomic.Int64
	var failed atomic.Pointer[error]
	var wg sync.WaitGroup
	begin := time.Now()
	for range connections {
		wg.Go(func() {
			err := func() error {
				c, err := p.dial(ctx)
				if err != nil {
					return err
				}
				defer c.close()
				for {
					i := int(next.Add(1)) - 1
					if i >= n || failed.Load() != nil {
						return nil
					}
					start := time.Now()
					if _, err := c.expect(http.StatusCreated, "POST", p.channel()+"/broadcast", producer, payload); err != nil {
						return err
					}
					took[i] = time.Since(start)
				}
			}()
			if err != nil {
				failed.Store(&err)
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

// settle waits until every message that was broadcast is there for its consumers:
// the original makes their jobs after its answer.
func (p *process) settle(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, 2*time.Minute, errors.New("messages have no jobs two minutes after the last broadcast"))
	defer cancel()
	c, err := p.dial(ctx)
	if err != nil {
		return err
	}
	defer c.close()
	for {
		b, err := c.expect(http.StatusOK, "GET", c.channel+"/messages-status", nil, nil)
		if err != nil {
			return err
		}
		var status struct {
			Counts map[string]struct{ Count int }
		}
		if err := json.Unmarshal(b, &status); err != nil || status.Counts["ACKNOWLEDGED"].Count == 0 {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// queued is an item of queued-jobs or claim.
type queued struct {
	ID         string
	ClaimToken string
}

func (c *conn) jobs(method, consumer, query string) ([]queued, error) {
	b, err := c.expect(http.StatusOK, method, c.channel+"/consumer/"+consumer+query, tokens, nil)
	if err != nil {
		return nil, err
	}
	var list struct{ Result []queued }
	return list.Result, json.Unmarshal(b, &list)
}

// transition asks for a state, and tells whether that was accepted or refused.
func (c *conn) transition(consumer string, job queued, state string) (accepted bool, err error) {
	body := `{"NextState":"` + state + `","ClaimToken":"` + job.ClaimToken + `"}`
	path := c.channel + "/consumer/" + consumer + "/job/" + job.ID
	status, answer, err := c.call("POST", path, tokens, []byte(body))
	switch {
	case err != nil:
		return false, err
	case status == http.StatusAccepted:
		return true, nil
	case status == http.StatusBadRequest:
		return false, nil
	}
	return false, fmt.Errorf("POST %s: status %d: %s", path, status, answer)
}

// deliver completes jobs in one request.
func (c *conn) deliver(consumer string, jobs []queued) error {
	type transition struct{ ID, NextState, ClaimToken string }
	var request struct{ Transitions []transition }
	for _, j := range jobs {
		request.Transitions = append(request.Transitions, transition{j.ID, "DELIVERED", j.ClaimToken})
	}
	body, err := json.Marshal(request)
	if err != nil {
		return err
	}
	b, err := c.expect(http.StatusOK, "POST", c.channel+"/consumer/"+consumer+"/jobs", tokens, body)
	if err != nil {
		return err
	}
	var answer struct {
		Result []struct {
			ID, Error string
			Status    int
		}
	}
	if err := json.Unmarshal(b, &answer); err != nil {
		return err
	}
	for _, r := range answer.Result {
		if r.Status != http.StatusAccepted {
			return fmt.Errorf("job %s was claimed, and refused to be delivered: %d %s", r.ID, r.Status, r.Error)
		}
	}
	return nil
}

func perSecond(n int, d time.Duration) float64 { return float64(n) / d.Seconds() }
