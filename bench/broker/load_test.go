package broker

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
)

const (
	// token is the token of all producers, channels and consumers.
	token = "bench"
	// connections is the number of connections that broadcast.
	connections   = 32
	settleTimeout = 2 * time.Minute
)

// payload is the body of every message.
var payload = bytes.Repeat([]byte("x"), 512)

var tokens = http.Header{"X-Broker-Channel-Token": {token}, "X-Broker-Consumer-Token": {token}}

// conn is a persistent connection to a broker, with one request at a time. It implements only what HTTP needs, because it shares
// the processors with the broker.
type conn struct {
	net.Conn
	host    string
	channel string // the channel's path
	in      *bufio.Reader
	out     bytes.Buffer
}

// dial opens a connection that is closed at the end of the benchmark.
func (p *process) dial(b *testing.B) *conn {
	host := strings.TrimSuffix(strings.TrimPrefix(p.url, "http://"), "/")
	raw, err := (&net.Dialer{}).DialContext(b.Context(), "tcp", host)
	require.NoError(b, err)
	b.Cleanup(func() { _ = raw.Close() })
	return &conn{Conn: raw, host: host, channel: p.channel(), in: bufio.NewReader(raw)}
}

// call makes one request.
func (c *conn) call(method, path string, header http.Header, body []byte) (status int, answer []byte, err error) {
	c.out.Reset()
	c.out.WriteString(method + " " + path + " HTTP/1.1\r\nHost: " + c.host + "\r\nContent-Length: " + strconv.Itoa(len(body)) + "\r\n")
	for name, values := range header {
		c.out.WriteString(name + ": " + values[0] + "\r\n")
	}
	c.out.WriteString("\r\n")
	c.out.Write(body)
	if _, err := c.Write(c.out.Bytes()); err != nil {
		return 0, nil, err
	}
	resp, err := http.ReadResponse(c.in, nil)
	if err != nil {
		return 0, nil, err
	}
	answer, err = io.ReadAll(resp.Body)
	return resp.StatusCode, answer, errors.Join(err, resp.Body.Close())
}

// expect makes one request and checks its status.
func (c *conn) expect(want int, method, path string, header http.Header, body []byte) ([]byte, error) {
	status, answer, err := c.call(method, path, header, body)
	if err == nil && status != want {
		err = fmt.Errorf("%s %s: status %d: %s", method, path, status, answer)
	}
	return answer, err
}

// channel returns the path of the channel.
func (p *process) channel() string { return "/channel/" + p.id }

// producer returns the headers of a broadcast.
func (p *process) producer() http.Header {
	return http.Header{
		"X-Broker-Channel-Token": {token}, "X-Broker-Producer-Id": {p.id}, "X-Broker-Producer-Token": {token},
		"Content-Type": {"text/plain"},
	}
}

func (p *process) consumer(b *testing.B, id, kind, callback string) {
	p.put(b, p.channel()+"/consumer/"+id, url.Values{"type": {kind}, "callbackUrl": {callback}})
}

// put creates the object at a path.
func (p *process) put(b *testing.B, path string, form url.Values) {
	form.Set("token", token)
	_, err := p.dial(b).expect(http.StatusOK, "PUT", path, http.Header{"Content-Type": {"application/x-www-form-urlencoded"}}, []byte(form.Encode()))
	require.NoError(b, err)
}

// broadcast sends n messages over all connections, and returns the time of each.
func (p *process) broadcast(b *testing.B, n int) []time.Duration {
	took, producer, next := make([]time.Duration, n), p.producer(), atomic.Int64{}
	load, ctx := errgroup.WithContext(b.Context())
	for range connections {
		c := p.dial(b)
		load.Go(func() error {
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= n {
					break
				}
				start := time.Now()
				if _, err := c.expect(http.StatusCreated, "POST", p.channel()+"/broadcast", producer, payload); err != nil {
					return err
				}
				took[i] = time.Since(start)
			}
			return nil
		})
	}
	require.NoError(b, load.Wait())
	return took
}

// settle waits until all broadcast messages have jobs for their consumers. The original creates the jobs after its response.
func (p *process) settle(b *testing.B) {
	ctx, cancel := context.WithTimeoutCause(b.Context(), settleTimeout, fmt.Errorf("messages have no jobs %v after the last broadcast", settleTimeout))
	defer cancel()
	c := p.dial(b)
	for {
		answer, err := c.expect(http.StatusOK, "GET", c.channel+"/messages-status", nil, nil)
		require.NoError(b, err)
		var status struct {
			Counts map[string]struct{ Count int }
		}
		require.NoError(b, json.Unmarshal(answer, &status))
		if status.Counts["ACKNOWLEDGED"].Count == 0 {
			return
		}
		select {
		case <-ctx.Done():
			b.Fatal(context.Cause(ctx))
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
	answer, err := c.expect(http.StatusOK, method, c.channel+"/consumer/"+consumer+query, tokens, nil)
	if err != nil {
		return nil, err
	}
	var list struct{ Result []queued }
	return list.Result, json.Unmarshal(answer, &list)
}

// transition requests a state of a job, and reports whether the broker accepted it.
func (c *conn) transition(job queued, state string) (accepted bool, err error) {
	body := `{"NextState":"` + state + `","ClaimToken":"` + job.ClaimToken + `"}`
	path := c.channel + "/consumer/k/job/" + job.ID
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

// worker handles a page of the jobs of consumer k. It returns the number of listed jobs, and of those that it could start.
type worker func(c *conn) (listed, started int, err error)

// workAll handles pages until no jobs are left.
func (c *conn) workAll(one worker, started *atomic.Int64) error {
	for {
		listed, n, err := one(c)
		started.Add(int64(n))
		if listed == 0 || err != nil {
			return err
		}
	}
}

// workListed handles a page as with the original. It lists jobs, and moves each in turn to in flight and to delivered. With
// several workers, another one may have taken a job by then. The worker notices this only if the other has completed the job:
// its request is then refused, and it continues with the next job.
func workListed(c *conn) (listed, started int, err error) {
	jobs, err := c.jobs("GET", "k", "/queued-jobs?limit=100")
	for _, j := range jobs {
		var mine bool
		if mine, err = c.transition(j, "INFLIGHT"); err == nil && mine {
			started++
			_, err = c.transition(j, "DELIVERED")
		}
		if err != nil {
			break
		}
	}
	return len(jobs), started, err
}

// workClaimed claims a page and completes each job.
func workClaimed(c *conn) (listed, started int, err error) {
	jobs, err := c.jobs("POST", "k", "/claim?limit=100")
	for _, j := range jobs {
		mine, err := c.transition(j, "DELIVERED")
		if err == nil && !mine {
			err = fmt.Errorf("job %s was claimed, and refused to be delivered", j.ID)
		}
		if err != nil {
			return len(jobs), started, err
		}
		started++
	}
	return len(jobs), started, err
}

// workPaged claims a page, and completes all of its jobs in one request.
func workPaged(c *conn) (listed, started int, err error) {
	jobs, err := c.jobs("POST", "k", "/claim?limit=100")
	if err != nil || len(jobs) == 0 {
		return 0, 0, err
	}
	type transition struct{ ID, NextState, ClaimToken string }
	var request struct{ Transitions []transition }
	for _, j := range jobs {
		request.Transitions = append(request.Transitions, transition{j.ID, "DELIVERED", j.ClaimToken})
	}
	body, err := json.Marshal(request)
	if err != nil {
		return 0, 0, err
	}
	text, err := c.expect(http.StatusOK, "POST", c.channel+"/consumer/k/jobs", tokens, body)
	if err != nil {
		return 0, 0, err
	}
	var answer struct {
		Result []struct {
			ID, Error string
			Status    int
		}
	}
	err = json.Unmarshal(text, &answer)
	for _, r := range answer.Result {
		if r.Status != http.StatusAccepted {
			err = fmt.Errorf("job %s was claimed, and refused to be delivered: %d %s", r.ID, r.Status, r.Error)
		}
	}
	return len(jobs), len(jobs), err
}
