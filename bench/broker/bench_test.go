// Package broker measures the webhook broker under load: broadcasts, pushes, workers in three styles, lists at several
// depths, memory and starts. The broker is a separate process. Load and receivers are in this one. One operation is one
// message. See bench/README.md.
package broker

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/jetpull/jetpull/bench/internal/child"
)

const (
	// nowhere is the callback URL of consumers that get no callbacks.
	nowhere = "http://127.0.0.1:9/"
	// steadyRate and steadyMost are the messages per second and their maximum number in BenchmarkSteady.
	steadyRate = 100
	steadyMost = 1_000
	// pushTimeout limits the wait for callbacks.
	pushTimeout = 2 * time.Minute
	million     = 1_000_000
)

func BenchmarkBroadcast(b *testing.B) {
	each(b, "connections=32", func(b *testing.B, p *process) {
		p.consumer(b, "k", "pull", nowhere)
		b.ResetTimer()
		took := p.broadcast(b, b.N)
		child.Rate(b, "msgs/s")
		child.Latency(b, took)
		p.settle(b)
	})
}

// BenchmarkPush measures the time from the first broadcast to the last callback.
func BenchmarkPush(b *testing.B) {
	each(b, "end-to-end", func(b *testing.B, p *process) {
		done, n := make(chan struct{}), atomic.Int64{}
		p.receive(b, func(*http.Request) {
			if n.Add(1) == int64(b.N) {
				close(done)
			}
		})
		b.ResetTimer()
		p.broadcast(b, b.N)
		wait(b, done)
		child.Rate(b, "msgs/s")
	})
}

// BenchmarkSteady broadcasts 100 messages per second, and measures the time from the start of each broadcast to its callback.
func BenchmarkSteady(b *testing.B) {
	each(b, "rate=100", func(b *testing.B, p *process) {
		n := min(b.N, steadyMost)
		var mu sync.Mutex
		begun, took, done := make(map[string]time.Time, n), []time.Duration(nil), make(chan struct{})
		p.receive(b, func(r *http.Request) {
			now := time.Now()
			mu.Lock()
			took = append(took, now.Sub(begun[r.Header.Get("X-Broker-Message-Id")]))
			last := len(took) == n
			mu.Unlock()
			if last {
				close(done)
			}
		})
		idle := make(chan *conn, 16) // enough, so that no broadcast waits for a connection
		for range cap(idle) {
			idle <- p.dial(b)
		}
		ticker := time.NewTicker(time.Second / steadyRate)
		defer ticker.Stop()
		var load errgroup.Group
		for i := range n {
			<-ticker.C
			id := fmt.Sprintf("m%d", i)
			header := p.producer()
			header.Set("X-Broker-Message-Id", id)
			mu.Lock()
			begun[id] = time.Now()
			mu.Unlock()
			load.Go(func() error {
				c := <-idle
				defer func() { idle <- c }()
				_, err := c.expect(http.StatusCreated, "POST", p.channel()+"/broadcast", header, payload)
				return err
			})
		}
		require.NoError(b, load.Wait())
		wait(b, done)
		child.Latency(b, took)
		b.ReportMetric(0, "ns/op") // the ticker determines it
	})
}

// receive creates a push consumer, and calls f for each callback.
func (p *process) receive(b *testing.B, f func(*http.Request)) {
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { f(r) }))
	b.Cleanup(srv.Close)
	p.consumer(b, "k", "push", srv.URL)
}

func wait(b *testing.B, done chan struct{}) {
	b.Helper()
	select {
	case <-done:
	case <-b.Context().Done():
		b.Fatal("ended before all callbacks came")
	case <-time.After(pushTimeout):
		b.Fatalf("not all callbacks came in %v", pushTimeout)
	}
}

// BenchmarkPull measures one and eight workers that complete a job for each message, in three styles: as with the original, they
// list jobs and move each to in flight and then to delivered; they claim jobs; or they claim jobs and complete them page by page.
func BenchmarkPull(b *testing.B) {
	for _, style := range []struct {
		name string
		work worker
	}{{"queued-jobs", workListed}, {"claim", workClaimed}, {"claim-by-page", workPaged}} {
		for _, workers := range []int{1, 8} {
			each(b, fmt.Sprintf("style=%s,workers=%d", style.name, workers), func(b *testing.B, p *process) {
				if p.child == nil && style.name != "queued-jobs" {
					b.Skip("the original has no claims")
				}
				p.consumer(b, "k", "pull", nowhere)
				p.broadcast(b, b.N)
				p.settle(b)
				var started atomic.Int64
				b.ResetTimer()
				var load errgroup.Group
				for range workers {
					load.Go(func() error { return p.dial(b).workAll(style.work, &started) })
				}
				require.NoError(b, load.Wait())
				child.Rate(b, "jobs/s")
				b.ReportMetric(float64(started.Load())/float64(b.N), "started/job")
				if style.name != "queued-jobs" && started.Load() != int64(b.N) {
					b.Fatalf("%d jobs were started for %d messages", started.Load(), b.N)
				}
			})
		}
	}
}

// BenchmarkBare is an upper limit for BenchmarkPull with one worker. Its handler appends each body to a file and responds. It
// syncs the file at the last request of each job.
func BenchmarkBare(b *testing.B) {
	for _, requests := range []int{1, 2} {
		b.Run(fmt.Sprintf("requests=%d/broker=bare", requests), func(b *testing.B) {
			p := start(b, "bare", "")
			c := p.dial(b)
			b.ResetTimer()
			for range b.N {
				for left := requests; left > 0; left-- {
					path := unsynced
					if left == 1 {
						path = "/"
					}
					_, err := c.expect(http.StatusOK, "POST", path, nil, payload)
					require.NoError(b, err)
				}
			}
			child.Rate(b, "jobs/s")
		})
	}
}

// BenchmarkQueuedJobs measures lists of jobs among many, and the broker's memory.
func BenchmarkQueuedJobs(b *testing.B) {
	for _, depth := range []int{1_000, 50_000} {
		each(b, fmt.Sprintf("depth=%d", depth), func(b *testing.B, p *process) { p.atDepth(b, depth) })
	}
}

func (p *process) atDepth(b *testing.B, depth int) {
	p.consumer(b, "k", "pull", nowhere)
	p.broadcast(b, depth)
	p.settle(b)
	c := p.dial(b)
	for b.Loop() {
		_, err := c.jobs("GET", "k", "/queued-jobs")
		require.NoError(b, err)
	}
	if p.child != nil {
		p.child.ReportMemory(b, "memory-B")
	}
}

// BenchmarkMillion measures lists of jobs among a million, and the start of a broker with them after a stop and after a kill.
func BenchmarkMillion(b *testing.B) {
	if testing.Short() {
		b.Skip("it takes minutes, and needs no second round")
	}
	b.Run("depth=1000000/broker=always", func(b *testing.B) {
		p := start(b, "broker", "always")
		p.register(b)
		p.atDepth(b, million)
		require.NoError(b, p.child.Stop())
		require.NoError(b, p.child.Start())
		b.ReportMetric(p.child.Up.Seconds(), "start-s")
		p.child.ReportMemory(b, "started-B")
		require.NoError(b, p.child.Kill())
		require.NoError(b, p.child.Start())
		b.ReportMetric(p.child.Up.Seconds(), "start-after-kill-s")
	})
}
