// Package relay measures the webhook relay under load: one way and round trips beside a naive path with the same library,
// the response at a steady rate, redrives, and the cost of pending messages and of many receivers. The relay is a separate
// process. Load, receivers and callbacks are in this one. One operation is one message. See bench/README.md.
package relay

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/jetpull/jetpull/bench/internal/child"
)

const (
	// steadyRate and steadyMost are the messages per second and their maximum number in BenchmarkResponse.
	steadyRate = 100
	steadyMost = 1_000
	// mostSenders is the maximum number of concurrent senders in BenchmarkSync. fewSynced is the maximum number of messages of a single
	// sender, and of all senders to a relay whose server syncs each write.
	fewSynced   = 1_000
	mostSenders = 64
	// busy is the number of receivers of a fleet that get messages at a time, shift is how long they do, and groups is how many such groups.
	busy   = 200
	shift  = 2 * time.Second
	groups = 10
	// idleSettle is the pause before the idle load of a relay is measured, and idleTime is the time of that measurement.
	idleSettle = 10 * time.Second
	idleTime   = 30 * time.Second
)

// few is the crowd of all benchmarks except BenchmarkFleet.
var few = crowd{sources: 200, receivers: 4}

// BenchmarkDelivery measures the time from the first submitted message to the last request at the end of the path: the POST of
// one way, and the callback of a round trip. The naive path publishes, pulls, POSTs and acknowledges. The floor stores as much as
// the relay.
func BenchmarkDelivery(b *testing.B) {
	b.Run("path=naive", func(b *testing.B) {
		receiver := newCounter(b, b.N)
		p := start(b, "naive", receiver.URL, strconv.Itoa(b.N))
		before := p.cpu(b)
		b.ResetTimer()
		receiver.wait(b)
		p.rate(b, before)
	})
	b.Run("path=floor-one-way", func(b *testing.B) {
		receiver := newCounter(b, b.N)
		start(b, "floor", receiver.URL, "").through(b, receiver)
	})
	b.Run("path=floor-round-trip", func(b *testing.B) {
		receiver, sender := newCounter(b, b.N), newCounter(b, b.N)
		start(b, "floor", receiver.URL, sender.URL).through(b, sender)
	})
	b.Run("path=one-way", func(b *testing.B) {
		p, receiver := start(b, "relay"), newCounter(b, b.N)
		p.receivers(b, few, receiver.URL, false)
		p.through(b, receiver)
	})
	b.Run("path=round-trip", func(b *testing.B) {
		p, receiver, sender := start(b, "relay"), newCounter(b, b.N), newCounter(b, b.N)
		p.receivers(b, few, receiver.URL, false)
		p.mustCall(b, http.MethodPut, "/v1/senders/s", fmt.Appendf(nil, `{"callback_endpoint":%q,"token":"t","sources":[""]}`, sender.URL), nil)
		p.through(b, sender)
	})
}

// BenchmarkSync sends messages one way, each in a separate request, from 64 senders and from one. It measures the rate until the last POST, and how
// long a sender waits for its 202.
func BenchmarkSync(b *testing.B) {
	http.DefaultTransport.(*http.Transport).MaxIdleConnsPerHost = mostSenders
	for _, senders := range []int{mostSenders, 1} {
		for _, sync := range []string{"always", "2m", "each"} {
			b.Run(fmt.Sprintf("senders=%d/sync=%s", senders, sync), func(b *testing.B) {
				n := b.N
				if senders == 1 || sync == "each" {
					n = min(n, fewSynced)
				}
				p, receiver := start(b, "relay", sync), newCounter(b, n)
				p.receivers(b, few, receiver.URL, false)
				took := make([]time.Duration, n)
				var next atomic.Int64
				b.ResetTimer()
				begin := time.Now()
				var load errgroup.Group
				for range senders {
					load.Go(func() error {
						for i := next.Add(1) - 1; i < int64(n); i = next.Add(1) - 1 {
							begin := time.Now()
							if err := p.call(b.Context(), http.MethodPost, "/v1/messages", few.line(int(i)), nil); err != nil {
								return err
							}
							took[i] = time.Since(begin)
						}
						return nil
					})
				}
				require.NoError(b, load.Wait())
				receiver.wait(b)
				b.StopTimer()
				b.ReportMetric(float64(n)/time.Since(begin).Seconds(), "msgs/s")
				b.ReportMetric(0, "ns/op")
				child.Latency(b, took)
			})
		}
	}
}

func (p *process) through(b *testing.B, last *counter) {
	before := p.cpu(b)
	b.ResetTimer()
	p.send(b, few, 0, b.N)
	last.wait(b)
	p.rate(b, before)
}

// rate reports messages per second, and the processor time of the system per message.
func (p *process) rate(b *testing.B, before time.Duration) {
	child.Rate(b, "msgs/s")
	b.ReportMetric(float64(p.cpu(b)-before)/float64(b.N), "cpu-ns/msg")
}

// BenchmarkResponse measures how long a sender waits for the response at a steady rate. Beside a black hole, every second
// message is for a receiver that never responds.
func BenchmarkResponse(b *testing.B) {
	for _, path := range []string{"alone", "beside-black-hole"} {
		b.Run("path="+path, func(b *testing.B) {
			p, answering, n := start(b, "relay"), newCounter(b, 0), min(b.N, steadyMost)
			p.receivers(b, few, answering.URL, false)
			took := make([]time.Duration, n)
			hole := crowd{sources: 200, receivers: 1, name: "hole"}
			if path != "alone" {
				p.receivers(b, hole, blackHole(b), false)
				p.send(b, hole, 0, batchSize) // keeps all of its workers busy from the start
			}
			ticker := time.NewTicker(time.Second / steadyRate)
			defer ticker.Stop()
			var load errgroup.Group
			for i := range n {
				<-ticker.C
				load.Go(func() error {
					if path != "alone" {
						if err := p.call(b.Context(), http.MethodPost, "/v1/messages", hole.line(batchSize+i), nil); err != nil {
							return err
						}
					}
					begin := time.Now()
					err := p.call(b.Context(), http.MethodPost, "/v1/messages?wait=30s", few.line(i), nil)
					took[i] = time.Since(begin)
					return err
				})
			}
			require.NoError(b, load.Wait())
			child.Latency(b, took)
			b.ReportMetric(0, "ns/op") // the ticker determines it
		})
	}
}

// blackHole starts a server that never responds.
func blackHole(b *testing.B) (url string) {
	closing, stop := context.WithCancel(context.Background())
	hole := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-closing.Done():
		case <-r.Context().Done():
		}
	}))
	b.Cleanup(func() { stop(); hole.Close() })
	return hole.URL
}

// BenchmarkRedrive measures the time from the request to the last POST.
func BenchmarkRedrive(b *testing.B) {
	b.Run("path=redrive", func(b *testing.B) {
		p, receiver := start(b, "relay"), newCounter(b, 2*b.N)
		receiver.code.Store(http.StatusBadRequest)
		p.receivers(b, few, receiver.URL, false)
		p.send(b, few, 0, b.N)
		var dry struct{ Matched int }
		for dry.Matched < b.N {
			p.mustCall(b, http.MethodPost, "/v1/failed:redrive", []byte(`{"filter":{},"dry_run":true}`), &dry)
		}
		receiver.code.Store(http.StatusOK)
		before := p.cpu(b)
		b.ResetTimer()
		p.mustCall(b, http.MethodPost, "/v1/failed:redrive", []byte(`{"filter":{}}`), nil)
		receiver.wait(b)
		p.rate(b, before)
	})
}

// BenchmarkPending measures the cost of messages that wait for paused receivers, and a kill and a start with them.
func BenchmarkPending(b *testing.B) {
	b.Run("path=paused", func(b *testing.B) {
		p, receiver := start(b, "relay"), newCounter(b, 1)
		p.receivers(b, few, receiver.URL, true)
		half := b.N / 2
		b.ResetTimer()
		p.send(b, few, 0, half)
		before, err := p.Memory()
		require.NoError(b, err)
		p.send(b, few, half, b.N)
		child.Rate(b, "msgs/s")
		after, err := p.Memory()
		require.NoError(b, err)
		b.ReportMetric(after, "memory-B")
		b.ReportMetric((after-before)/float64(b.N-half), "memory-B/msg")
		require.NoError(b, p.Kill())
		require.NoError(b, p.Start())
		b.ReportMetric(p.Up.Seconds(), "start-after-kill-s")
		begin := time.Now()
		p.receivers(b, few, receiver.URL, false)
		receiver.wait(b)
		b.ReportMetric(time.Since(begin).Seconds(), "first-POST-s")
	})
}

// BenchmarkFleet measures the cost of b.N receivers while nothing happens, and while some of them get messages, one group after
// another. It also measures a start with them.
func BenchmarkFleet(b *testing.B) {
	if testing.Short() {
		b.Skip("it takes minutes, and needs no second round")
	}
	b.Run("path=fleet", func(b *testing.B) {
		if b.N < busy {
			return // the testing package first tries a small b.N
		}
		p, receiver, all := start(b, "relay"), newCounter(b, 0), crowd{sources: b.N, receivers: b.N}
		p.receivers(b, all, receiver.URL, false)
		child.Rate(b, "made/s")
		p.idle(b, "idle")
		most := 0.0
		for from := 0; from+busy <= min(b.N, groups*busy); from += busy {
			next := time.After(shift)
			p.send(b, all, from, from+busy)
			for receiver.n.Load() < int64(from+busy) {
				select {
				case <-time.After(time.Millisecond):
				case <-b.Context().Done():
					b.Fatalf("%d of %d requests came", receiver.n.Load(), from+busy)
				}
			}
			memory, err := p.Memory()
			require.NoError(b, err)
			most = max(most, memory)
			<-next
		}
		b.ReportMetric(most, "busy-B")
		require.NoError(b, p.Stop())
		require.NoError(b, p.Start())
		b.ReportMetric(p.Up.Seconds(), "start-s")
		p.idle(b, "restarted")
	})
}

// idle reports the memory, and the load while nothing happens.
func (p *process) idle(b *testing.B, when string) {
	<-time.After(idleSettle)
	before := p.cpu(b)
	<-time.After(idleTime)
	b.ReportMetric(100*(p.cpu(b)-before).Seconds()/idleTime.Seconds(), when+"-%-of-a-core")
	p.ReportMemory(b, when+"-B")
}
