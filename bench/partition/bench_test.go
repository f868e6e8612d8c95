// Package partition measures package partition: one member beside a plain Consume, a fleet beside the elastic groups of orbit.go's
// pcgroups, how long a partition has no owner, and the cost of idle partitions. See bench/partition.md.
package partition

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
	"github.com/synadia-io/orbit.go/pcgroups"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/bench/internal/child"
	"github.com/jetpull/jetpull/partition"
)

const (
	partitions = 64
	keys       = 1_024
	ttl        = 2 * time.Second
	members    = 4
	// stuck is how long a side may make no progress before its round fails.
	stuck = 20 * time.Second
)

// env is the stream of a side of a benchmark, and what the side has started.
type env struct {
	*testing.B
	js     jetstream.JetStream
	stream string
	ctx    context.Context
	stop   context.CancelFunc
	work   sync.WaitGroup

	cpu     time.Duration // of this process and the server, when the clock started
	handled atomic.Int64
	all     chan struct{} // closed when want messages are handled
	want    int64
}

var streams atomic.Int64

// keyNames are the keys. Each partition has the same number of keys. With randomly distributed keys, the partition with the most keys would
// end last. A single Consume has no such partition, so the comparison would measure the hash.
var keyNames = func() (names []string) {
	var of [partitions]int
	for i := 0; len(names) < keys; i++ {
		name := fmt.Sprint("k", i)
		if n := partition.Of(name, partitions); of[n] < keys/partitions {
			of[n]++
			names = append(names, name)
		}
	}
	return names
}()

// newEnv creates a stream with n messages. If transformed is true, the stream adds the partition to the subjects.
func newEnv(b *testing.B, n int, transformed bool) *env {
	e := &env{B: b, js: connect(b), stream: fmt.Sprintf("S%d", streams.Add(1)), all: make(chan struct{}), want: int64(n)}
	e.ctx, e.stop = context.WithCancel(context.WithoutCancel(b.Context()))
	config := jetstream.StreamConfig{Name: e.stream, Subjects: []string{e.stream + ".*"}}
	if transform := partition.Transform(partitions, e.stream+".*"); transformed {
		config.SubjectTransform = &transform
	}
	_, err := e.js.CreateStream(e.ctx, config)
	require.NoError(b, err)
	for i := range n {
		_, err := e.js.PublishAsync(e.stream+"."+keyNames[i%keys], fmt.Append(nil, i/keys))
		require.NoError(b, err)
		if i%4000 == 3999 {
			<-e.js.PublishAsyncComplete()
		}
	}
	<-e.js.PublishAsyncComplete()
	b.Cleanup(func() {
		e.stop()
		e.work.Wait()
		require.NoError(b, e.js.DeleteStream(context.Background(), e.stream))
		e.js.Conn().Close()
	})
	return e
}

// begin starts the clock.
func (e *env) begin() {
	e.cpu = e.used()
	e.ResetTimer()
}

func (e *env) used() time.Duration {
	cpu, err := server.CPU()
	require.NoError(e.B, err)
	return cpu + child.OwnCPU()
}

func connect(b *testing.B) jetstream.JetStream {
	nc, err := nats.Connect(server.URLs[0])
	require.NoError(b, err)
	js, err := jetstream.New(nc)
	require.NoError(b, err)
	return js
}

func (e *env) open(js jetstream.JetStream) *partition.Set {
	set, err := partition.Open(e.ctx, js, e.stream, partition.Config{
		Name: e.stream, Partitions: partitions, Subject: e.stream + ".{partition}.*",
		TTL: ttl,
	})
	require.NoError(e.B, err)
	return set
}

// member starts a member on a new connection. crash closes the connection, as a crash would, and leave ends the member.
func (e *env) member(h jetpull.Handler, opts ...partition.Option) (crash, leave func()) {
	js := connect(e.B)
	set := e.open(js)
	ctx, leave := context.WithCancel(e.ctx)
	e.work.Go(func() {
		defer leave()
		if err := set.Consume(ctx, h, opts...); err != nil && !js.Conn().IsClosed() {
			e.Error(err)
		}
		js.Conn().Close()
	})
	return js.Conn().Close, leave
}

// count counts a message.
func (e *env) count() {
	if e.handled.Add(1) == e.want {
		close(e.all)
	}
}

// wait waits until all messages are handled, and reports the rate and the processor time per message.
func (e *env) wait() {
	e.Helper()
	for before := int64(-1); ; before = e.handled.Load() {
		select {
		case <-e.all:
			child.Rate(e.B, "msgs/s")
			e.ReportMetric(float64(e.used()-e.cpu)/float64(e.N), "cpu-ns/msg")
			return
		case <-time.After(stuck):
			if now := e.handled.Load(); now == before {
				e.Fatalf("%d of %d messages were handled", now, e.want)
			}
		}
	}
}

// BenchmarkOneMember measures one member that has all partitions, with one worker each, beside a Consume with as many workers. Both keep
// the order of each subject.
func BenchmarkOneMember(b *testing.B) {
	for _, work := range []time.Duration{0, time.Millisecond, 5 * time.Millisecond} {
		handle := func(e *env) jetpull.Handler {
			return func(context.Context, *jetpull.Msg) error {
				if work > 0 {
					<-time.After(work)
				}
				e.count()
				return nil
			}
		}
		b.Run(fmt.Sprintf("handler=%v/side=consume", work), func(b *testing.B) {
			e := newEnv(b, b.N, true)
			_, err := e.js.CreateConsumer(e.ctx, e.stream, jetstream.ConsumerConfig{
				Durable: "c", AckPolicy: jetstream.AckExplicitPolicy,
				MaxAckPending: partitions * 256,
			})
			require.NoError(b, err)
			sub, err := jetpull.Subscribe(e.ctx, e.js, e.stream, "c")
			require.NoError(b, err)
			e.begin()
			e.work.Go(func() {
				err := sub.Consume(e.ctx, handle(e), jetpull.Concurrency(partitions), jetpull.OrderedBy(func(m *jetpull.Msg) string { return m.Subject() }))
				if err != nil {
					e.Error(err)
				}
			})
			e.wait()
		})
		b.Run(fmt.Sprintf("handler=%v/side=partition", work), func(b *testing.B) {
			e := newEnv(b, b.N, true)
			e.open(e.js) // creates the consumers, as above
			e.begin()
			e.member(handle(e))
			e.wait()
		})
	}
}

// BenchmarkFleet measures four members, from their start until all messages of the stream are handled.
func BenchmarkFleet(b *testing.B) {
	b.Run("side=pcgroups", func(b *testing.B) {
		e := newEnv(b, b.N, false)
		filters := []pcgroups.PartitioningFilter{{Filter: e.stream + ".*", PartitioningWildcards: []int{1}}}
		var names []string
		for n := range members {
			names = append(names, fmt.Sprintf("m%d", n))
		}
		e.begin()
		_, err := pcgroups.CreateElastic(e.ctx, e.js, e.stream, "g", partitions, filters, 0, 0)
		require.NoError(b, err)
		_, err = pcgroups.AddMembers(e.ctx, e.js, e.stream, "g", names)
		require.NoError(b, err)
		for _, name := range names {
			js := connect(b)
			c, err := pcgroups.ElasticConsume(e.ctx, js, e.stream, "g", name, func(m jetstream.Msg) {
				e.count()
				_ = m.Ack()
			}, jetstream.ConsumerConfig{AckPolicy: jetstream.AckExplicitPolicy, AckWait: 30 * time.Second, MaxAckPending: 256 * partitions / members})
			require.NoError(b, err)
			b.Cleanup(func() { c.Stop(); js.Conn().Close() })
		}
		e.wait()
		require.NoError(b, pcgroups.DeleteElastic(e.ctx, e.js, e.stream, "g"))
	})
	b.Run("side=partition", func(b *testing.B) {
		e := newEnv(b, b.N, true)
		e.begin()
		for range members {
			e.member(func(context.Context, *jetpull.Msg) error { e.count(); return nil })
		}
		e.wait()
	})
}

// BenchmarkWithoutOwner measures how long a partition's messages wait when its owner leaves: from the last handler of the former owner, or
// its crash, to the first handler of the next. Each partition gets a message every 10 ms. Each 1,000 operations have one change.
func BenchmarkWithoutOwner(b *testing.B) {
	if testing.Short() {
		b.Skip("the first round has measured it")
	}
	for _, after := range []string{"hand-over", "crash"} {
		b.Run("after="+after, func(b *testing.B) {
			changes := max(1, b.N/1000)
			var hashed [partitions]string
			for n := range hashed {
				hashed[n] = keyOf(n)
			}
			e := newEnv(b, 0, true)
			var mu sync.Mutex
			last := map[string]time.Time{}
			owner := map[string]int{}
			var gaps, measured []time.Duration
			start := func(number int) (crash, leave func(), took chan struct{}) {
				took = make(chan struct{}, keys)
				crash, leave = e.member(func(_ context.Context, m *jetpull.Msg) error {
					mu.Lock()
					defer mu.Unlock()
					now := time.Now()
					if owner[m.Subject()] < number {
						if !last[m.Subject()].IsZero() {
							gaps = append(gaps, now.Sub(last[m.Subject()]))
						}
						took <- struct{}{}
					}
					owner[m.Subject()], last[m.Subject()] = number, now
					return nil
				})
				return crash, leave, took
			}
			e.work.Go(func() {
				tick := time.NewTicker(10 * time.Millisecond)
				defer tick.Stop()
				for e.ctx.Err() == nil {
					<-tick.C
					for n := range partitions {
						_, _ = e.js.PublishAsync(e.stream+"."+hashed[n], nil)
					}
				}
			})
			crash, leave, took := start(1)
			for range partitions {
				<-took
			}
			b.ResetTimer()
			for number := 2; number < changes+2; number++ {
				oldCrash, oldLeave := crash, leave
				crash, leave, took = start(number)
				for range partitions / 2 { // a new member gets its share
					<-took
				}
				if after == "crash" {
					mu.Lock()
					gaps = slices.Clone(measured)
					mu.Unlock()
					oldCrash()
				} else {
					oldLeave()
				}
				for range partitions / 2 {
					<-took
				}
				mu.Lock()
				measured = slices.Clone(gaps)
				mu.Unlock()
			}
			slices.Sort(measured)
			b.ReportMetric(float64(measured[len(measured)/2].Microseconds())/1000, "p50-ms")
			b.ReportMetric(float64(measured[len(measured)-1].Microseconds())/1000, "max-ms")
			b.ReportMetric(float64(changes), "changes")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// keyOf returns a key of a partition.
func keyOf(n int) string {
	for i := 0; ; i++ {
		if key := fmt.Sprint("k", i); partition.Of(key, partitions) == n {
			return key
		}
	}
}

// BenchmarkIdle measures the heap of a member whose partitions have no messages.
func BenchmarkIdle(b *testing.B) {
	e := newEnv(b, 0, true)
	e.open(e.js)
	before := heap()
	assigned := make(chan int, partitions)
	e.member(func(context.Context, *jetpull.Msg) error { return nil }, partition.OnAssign(func(n int, _ string) { assigned <- n }))
	for range partitions {
		<-assigned
	}
	<-time.After(2 * ttl)
	b.ReportMetric(float64(heap()-before)/1e6, "heap-MB")
	b.ReportMetric(0, "ns/op")
}

func heap() int64 {
	runtime.GC()
	runtime.GC() // a pool frees its values only at the second collection
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}
