package client

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/bench/internal/child"
)

const (
	idleConsumes = 1_000 // the server's default limit for one stream
	// idleTime is longer than the expiry of pulls (30 s in nats.go), so that the figures include the renewal of pulls.
	idleTime         = 35 * time.Second
	idleSteady       = 100 * time.Millisecond // the interval of checks whether the number of goroutines still changes
	idleSteadyChecks = 5
)

// BenchmarkIdle measures the cost of idle Consumes on one connection, each with its own consumer: the heap of one, and the
// processor time and received frames of all.
func BenchmarkIdle(b *testing.B) {
	if testing.Short() {
		b.Skip("it takes 35 s for each client, and needs no second round")
	}
	for _, client := range []struct {
		name  string
		start func(ctx context.Context, js jetstream.JetStream, stream, consumer string) (stop func() error, err error)
	}{{"nats.go", natsIdle}, {"jetpull", oursIdle}} {
		b.Run(fmt.Sprintf("consumes=%d/client=%s", idleConsumes, client.name), func(b *testing.B) {
			ctx := b.Context()
			stream := fmt.Sprintf("IDLE_%d", rounds.Add(1))
			require.NoError(b, server.fill(ctx, stream, 0))
			defer func() { require.NoError(b, server.admin.DeleteStream(ctx, stream)) }()
			js, err := server.connect(false)
			require.NoError(b, err)
			defer js.Conn().Close()
			before := footprint()
			var stops []func() error
			defer func() {
				for _, stop := range stops {
					require.NoError(b, stop())
				}
			}()
			for i := range idleConsumes {
				consumer := fmt.Sprintf("c%d", i)
				_, err := server.admin.CreateConsumer(ctx, stream, jetstream.ConsumerConfig{Durable: consumer, MemoryStorage: true})
				require.NoError(b, err)
				stop, err := client.start(ctx, js, stream, consumer)
				require.NoError(b, err)
				stops = append(stops, stop)
			}
			steadyGoroutines()
			received, cpu, began := js.Conn().Stats().InMsgs, child.OwnCPU(), time.Now()
			<-time.After(idleTime)
			seconds := time.Since(began).Seconds()
			b.ReportMetric(100*(child.OwnCPU()-cpu).Seconds()/seconds, "%-of-a-core")
			b.ReportMetric(float64(js.Conn().Stats().InMsgs-received)/seconds, "frames-received/s")
			after := footprint()
			b.ReportMetric(float64(after-before)/idleConsumes, "heap-B/consume")
			b.ReportMetric(0, "ns/op") // meaningless
		})
	}
}

// footprint returns the size of the live heap when the number of goroutines is steady.
func footprint() int64 {
	steadyGoroutines()
	runtime.GC()
	runtime.GC() // a pool frees its values only at the second collection
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}

// steadyGoroutines waits until the number of goroutines no longer changes.
func steadyGoroutines() {
	tick := time.NewTicker(idleSteady)
	defer tick.Stop()
	goroutines := runtime.NumGoroutine()
	for same := 0; same < idleSteadyChecks; same++ {
		<-tick.C
		if now := runtime.NumGoroutine(); now != goroutines {
			goroutines, same = now, -1
		}
	}
}
