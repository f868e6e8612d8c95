// Package client compares this library with nats.go. Both read the same messages with the same consumer from one server, in turn.
// One operation of a benchmark is one message. See bench/README.md.
package client

import (
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

const (
	poolSize        = 64
	poolHandlerTime = time.Millisecond
	slowHandlerTime = 20 * time.Millisecond
	slowMessages    = 300

	bare = "ChanSubscribe"
)

var (
	acksNone = jetstream.ConsumerConfig{AckPolicy: jetstream.AckNonePolicy}
	// acksHeld has no limit: all messages of a round are held before the first is acknowledged.
	acksHeld = jetstream.ConsumerConfig{MaxAckPending: -1}
	// onLinks are the links, with the names of their sub-benchmarks.
	onLinks = []struct {
		name string
		load workload
	}{{"link=loopback", workload{}}, {"link=5ms", workload{slow: true}}}
)

// contender is a client, and how it reads a round.
type contender struct {
	name string
	run  work
}

// compare runs the clients, nats.go first, because benchstat compares the others with the first.
func compare(b *testing.B, name string, w workload, theirs, ours work, others ...contender) {
	b.Helper()
	b.Run(name, func(b *testing.B) {
		for _, client := range append([]contender{{"nats.go", theirs}, {"jetpull", ours}}, others...) {
			b.Run("client="+client.name, func(b *testing.B) {
				b.ReportAllocs()
				r, err := play(b.Context(), b, b.N, w, client.run)
				if err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(float64(r.cpu)/float64(b.N), "cpu-ns/op")
			})
		}
	})
}

func BenchmarkNext(b *testing.B) {
	for _, n := range []int{1, 8, 64} {
		compare(b, fmt.Sprintf("goroutines=%d", n), workload{}, natsNext(n), oursNext(n), contender{bare, bareNext(n)})
	}
}

func BenchmarkAckNext(b *testing.B) {
	compare(b, "link=loopback", workload{}, natsNext(1), oursAckNext, contender{bare, bareAckNext})
}

func BenchmarkFetch(b *testing.B) {
	for _, n := range []int{10, 100, 1000} {
		compare(b, fmt.Sprintf("batch=%d", n), workload{}, natsFetch(n), oursFetch(n), contender{bare, bareFetch(n)})
	}
}

// BenchmarkConfirmAcks compares ConfirmAcks for 100 messages with DoubleAck for each. The messages are fetched before the clock
// starts.
func BenchmarkConfirmAcks(b *testing.B) {
	for _, on := range onLinks {
		on.load.config = acksHeld
		compare(b, on.name, on.load, natsDoubleAck, oursConfirm)
	}
}

func BenchmarkConsume(b *testing.B) {
	compare(b, "acks=none", workload{config: acksNone}, natsConsume, oursConsume)
	for _, on := range onLinks {
		compare(b, on.name, on.load, natsConsume, oursConsume)
	}
	compare(b, "handlers=64", workload{}, natsPool, oursPool)
}

// BenchmarkLimited measures the cost of a limit that is never reached.
func BenchmarkLimited(b *testing.B) {
	for _, by := range []contender{{"none", oursUnlimited}, {"limit", oursLimited}} {
		b.Run("by="+by.name, func(b *testing.B) {
			b.ReportAllocs()
			r, err := play(b.Context(), b, b.N, workload{}, by.run)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(r.cpu)/float64(b.N), "cpu-ns/op")
		})
	}
}

func BenchmarkMessages(b *testing.B) {
	for _, on := range onLinks {
		compare(b, on.name, on.load, natsMessages, oursMessages)
	}
}

// BenchmarkSlowHandler counts how often a handler of 20 ms is called for 300 messages if AckWait is 1 s. The round ends
// when the client has handled all messages that it has read, including duplicates.
func BenchmarkSlowHandler(b *testing.B) {
	if testing.Short() {
		b.Skip("it counts, and needs no second round")
	}
	w := workload{config: jetstream.ConsumerConfig{AckWait: time.Second}, duplicates: true}
	for _, client := range []contender{{"nats.go", natsSlowHandler}, {"jetpull", oursSlowHandler}} {
		b.Run("messages=300/client="+client.name, func(b *testing.B) {
			calls := 0
			for range b.N {
				r, err := play(b.Context(), b, slowMessages, w, client.run)
				if err != nil {
					b.Fatal(err)
				}
				calls += r.receipts.calls()
			}
			b.ReportMetric(float64(calls)/float64(b.N), "calls/op")
		})
	}
}
