// Package relay measures the webhook relay under load: one way and round trips beside a naive path with the same library,
// the response at a steady rate, redrives, and what pending messages and many receivers cost. The relay is a process of
// its own; load, receivers and callbacks are in this one. One operation is one message. See bench/README.md.
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

	"golang.org/x/sync/errgroup"

	"github.com/jetpull/jetpull/bench/internal/child"
)

const (
	// steadyRate and steadyMost are of BenchmarkResponse.
	steadyRate = 100
	steadyMost = 1_000
	// mostSenders is how many send at a time in BenchmarkSync, and fewSynced how many messages a single sender sends, or any number of
	// them to a relay whose server syncs each write.
	fewSynced   = 1_000
	mostSenders = 64
	// busy is how many receivers of a fleet get messages at a time, and shift for how long these do. groups get some.
	busy   = 200
	shift  = 2 * time.Second
	groups = 10
	// idleSettle is how long a relay is left alone before its idle load is measured, and idleTime for how long that is.
	idleSettle = 10 * time.Second
	idleTime   = 30 * time.Second
)

// few is the crowd that is no fleet.
var few = crowd{sources: 200, receivers: 4}

// BenchmarkDelivery measures from the first message that is handed in to the last request at the end of the path: the POST
// one way, and the callback of a round trip. The naive path publishes, takes, POSTs and acknowledges. The floor stores as much
// as the relay.
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

// BenchmarkSync sends messages one way, each in a request of its own, from 64 senders and from one. It measures the rate until the last POST, and how
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
				child.Check(b, load.Wait())
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

// rate reports messages a second, and the processor time of the system for one.
func (p *process) rate(b *testing.B, before time.Duration) {
	child.Rate(b, "msgs/s")
	b.ReportMetric(float64(p.cpu(b)-before)/float64(b.N), "cpu-ns/msg")
}

// BenchmarkResponse measures how long a sender waits for the response at a steady rate. Beside a black hole every second
// message is for a receiver that never answers.
func BenchmarkResponse(b *testing.B) {
	for _, path := range []string{"alone", "beside-black-hole"} {
		b.Run("path="+path, func(b *testing.B) {
			p, answering, n := start(b, "relay"), newCounter(b, 0), min(b.N, steadyMost)
			p.receivers(b, few, answering.URL, false)
			took := make([]time.Duration, n)
			hole := crowd{sources: 200, receivers: 1, name: "hole"}
			if path != "alone" {
				p.receivers(b, hole, blackHole(b), false)
				p.send(b, hole, 0, batchSize) // so that all of its workers are busy from the start
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
			child.Check(b, load.Wait())
			child.Latency(b, took)
			b.ReportMetric(0, "ns/op") // is that of the ticker
		})
	}
}

// blackHole is a server that never answers.
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

// BenchmarkRedrive measures from the request to the last POST.
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

// BenchmarkPending measures what messages cost that wait for receivers which are paused, and a kill and a start with them.
func BenchmarkPending(b *testing.B) {
	b.Run("path=paused", func(b *testing.B) {
		p, receiver := start(b, "relay"), newCounter(b, 1)
		p.receivers(b, few, receiver.URL, true)
		half := b.N / 2
		b.ResetTimer()
		p.send(b, few, 0, half)
		before, err := p.Memory()
		child.Check(b, err)
		p.send(b, few, half, b.N)
		child.Rate(b, "msgs/s")
		after, err := p.Memory()
		child.Check(b, err)
		b.ReportMetric(after, "memory-B")
		b.ReportMetric((after-before)/float64(b.N-half), "memory-B/msg")
		child.Check(b, p.Kill())
		child.Check(b, p.Start())
		b.ReportMetric(p.Up.Seconds(), "start-after-kill-s")
		begin := time.Now()
		p.receivers(b, few, receiver.URL, false)
		receiver.wait(b)
		b.ReportMetric(time.Since(begin).Seconds(), "first-POST-s")
	})
}

// BenchmarkFleet measures what b.N receivers cost while nothing happens and while some of them get messages, one group after
// the other, and a start with them.
func BenchmarkFleet(b *testing.B) {
	if testing.Short() {
		b.Skip("it takes minutes, and needs no second round")
	}
	b.Run("path=fleet", func(b *testing.B) {
		if b.N < busy {
			return // the testing package tries few first
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
			child.Check(b, err)
			most = max(most, memory)
			<-next
		}
		b.ReportMetric(most, "busy-B")
		child.Check(b, p.Stop())
		child.Check(b, p.Start())
		b.ReportMetric(p.Up.Seconds(), "start-s")
		p.idle(b, "restarted")
	})
}

// idle reports memory, and the load while nothing happens.
func (p *process) idle(b *testing.B, when string) {
	<-time.After(idleSettle)
	before := p.cpu(b)
	<-time.After(idleTime)
	b.ReportMetric(100*(p.cpu(b)-before).Seconds()/idleTime.Seconds(), when+"-%-of-a-core")
	p.ReportMemory(b, when+"-B")
}
