package test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull"
)

// oneWay is how long what is sent takes from a far client to the consumer's server.
const oneWay = 150 * time.Millisecond

// farClients begin to consume "C", and return how they stop. They acknowledge each message, and then their connection is closed.
var farClients = map[string]func(t *testing.T, nc *nats.Conn, handled func()) (stop func()){
	"jetpull": func(t *testing.T, nc *nats.Conn, handled func()) func() {
		sub := subscribe(t, domain(t, nc), "S", "C")
		run := consume(t, sub, func(context.Context, *jetpull.Msg) error { handled(); return nil })
		return func() {
			run.end(t)
			require.NoError(t, sub.Close(t.Context()))
		}
	},
	"nats.go, Drain": func(t *testing.T, nc *nats.Conn, handled func()) func() {
		run := consumeByNATS(t, nc, handled)
		return func() {
			run.Drain()
			receive(t, run.Closed(), "end of Consume")
		}
	},
	"nats.go, Stop": func(t *testing.T, nc *nats.Conn, handled func()) func() {
		run := consumeByNATS(t, nc, handled)
		return func() {
			run.Stop()
			receive(t, run.Closed(), "end of Consume")
		}
	},
}

// consumeByNATS consumes "C" by nats.go.
func consumeByNATS(t *testing.T, nc *nats.Conn, handled func()) jetstream.ConsumeContext {
	t.Helper()
	c, err := lookUp(t, domain(t, nc), "S", "C")
	require.NoError(t, err)
	run, err := c.Consume(func(m jetstream.Msg) {
		require.NoError(t, m.Ack())
		handled()
	})
	require.NoError(t, err)
	return run
}

// A client on a leaf node stops while messages are published, again and again. Messages that the consumer's server sends before it
// knows of a stop are stranded: they wait for AckWait.
func TestStopsBehindASlowLink(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a minute: run it without -short")
	}
	t.Parallel()
	for _, rate := range []int{20, 200, 1000} {
		t.Run(fmt.Sprintf("%d messages per s", rate), func(t *testing.T) {
			t.Parallel()
			stranded := map[string]int{}
			for name, begin := range farClients {
				each := strandedBy(t, rate, begin)
				for _, n := range each {
					stranded[name] += n
				}
				t.Logf("%s: %v messages wait for AckWait", name, each)
			}
			require.LessOrEqual(t, stranded["jetpull"], stranded["nats.go, Drain"])
		})
	}
}

// strandedBy returns how many messages each of some stops of a client on a leaf node strands.
func strandedBy(t *testing.T, rate int, begin func(*testing.T, *nats.Conn, func()) func()) (each []int) {
	t.Helper()
	d := leafNode(t, 1)
	near := d.create(t, jetstream.ConsumerConfig{AckPolicy: jetstream.AckExplicitPolicy})
	pending := func() int {
		c, err := lookUp(t, d.js, "S", "C")
		require.NoError(t, err)
		return c.CachedInfo().NumAckPending
	}
	for range 3 {
		before := pending()
		d.links[0].Delay(oneWay)
		end := publishAt(t, d, rate)
		var handled atomic.Int64
		nc := connect(t, d.near)
		stop := begin(t, nc, func() { handled.Add(1) })
		reaches(t, 4*rate, "messages are handled, after those that waited", func() int { return int(handled.Load()) })
		stop()
		nc.Close()
		<-time.After(4 * oneWay) // until the consumer's server knows
		end()
		d.links[0].Delay(0)
		consumerHas(t, d.js, "S", "C", func(i *jetstream.ConsumerInfo) bool { return i.NumWaiting == 0 }, "no pull")
		takeAll(t, near)
		each = append(each, pending()-before)
	}
	return each
}

// publishAt publishes so many messages per second until end is called.
func publishAt(t *testing.T, d *distance, rate int) (end func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var publishing sync.WaitGroup
	publishing.Go(func() {
		for pace := time.Tick(time.Second / time.Duration(rate)); ctx.Err() == nil; <-pace {
			if _, err := d.js.PublishAsync("s.a", nil); err != nil {
				t.Errorf("publish: %v", err)
				return
			}
		}
	})
	return func() {
		cancel()
		publishing.Wait()
		receive(t, d.js.PublishAsyncComplete(), "all is published")
	}
}

// takeAll acknowledges all messages that can be had.
func takeAll(t *testing.T, sub *jetpull.Subscription) {
	t.Helper()
	for {
		msgs, err := sub.Fetch(t.Context(), 1000, jetpull.MaxWait(time.Second))
		if err != nil {
			require.ErrorIs(t, err, jetpull.ErrTimeout)
			return
		}
		for _, m := range msgs {
			require.NoError(t, m.DoubleAck(t.Context()))
		}
	}
}
