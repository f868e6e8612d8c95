package test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/internal/natstest"
	"github.com/jetpull/jetpull/test/servertest"
)

const (
	// patience bounds every wait for something that has to happen.
	patience = 2 * time.Minute
	// forever is a wait that no test sits out: what returns before patience is over
	// has not waited for its deadline.
	forever = time.Hour
	// look is how often a condition that nothing announces is looked at.
	look = 5 * time.Millisecond
)

const nextSubject = "$JS.API.CONSUMER.MSG.NEXT.S.C"

var (
	errNoUse = errors.New("no use")
	byKey    = jetpull.OrderedBy((*jetpull.Msg).Subject)
)

// pinnedConsumer has a priority timeout of two minutes, the server's default.
func pinnedConsumer() jetstream.ConsumerConfig {
	return jetstream.ConsumerConfig{PriorityPolicy: jetstream.PriorityPolicyPinned, PriorityGroups: []string{"A"}, AckWait: time.Minute}
}

// rig is a server with a stream "S" that takes s.>, and a connection to it.
type rig struct {
	server *servertest.Server
	nc     *nats.Conn
	js     jetstream.JetStream
}

func newRig(t *testing.T, opts ...servertest.ServerOption) *rig {
	t.Helper()
	server := servertest.RunServer(t, opts...)
	nc := server.Connect(t)
	r := &rig{server: server, nc: nc, js: server.JetStream(t, nc)}
	natstest.Stream(t, r.js, "S", "s.>")
	return r
}

// consumer makes a durable consumer "C" of the rig's stream.
func (r *rig) consumer(t *testing.T, cfg jetstream.ConsumerConfig) jetstream.Consumer {
	t.Helper()
	if cfg.Durable == "" && cfg.Name == "" {
		cfg.Durable = "C"
	}
	return natstest.Consumer(t, r.js, "S", cfg)
}

// subscribe makes a consumer "C" and subscribes to it.
func (r *rig) subscribe(t *testing.T, cfg jetstream.ConsumerConfig, opts ...jetpull.SubscribeOption) *jetpull.Subscription {
	t.Helper()
	r.consumer(t, cfg)
	return subscribe(t, r.js, "S", "C", opts...)
}

func (r *rig) publish(t *testing.T, n int) {
	t.Helper()
	natstest.Publish(t, r.js, "s.a", n)
}

// subscribe binds to a consumer, and closes when the test ends.
func subscribe(t *testing.T, js jetstream.JetStream, stream, consumer string, opts ...jetpull.SubscribeOption) *jetpull.Subscription {
	t.Helper()
	sub, err := jetpull.Subscribe(t.Context(), js, stream, consumer, opts...)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		assert.NoError(t, sub.Close(ctx), "close in cleanup")
	})
	return sub
}

// connect connects to a URL, such as a proxy's, and closes when the test ends.
func connect(t *testing.T, url string, opts ...nats.Option) *nats.Conn {
	t.Helper()
	opts = append([]nats.Option{
		nats.MaxReconnects(-1), nats.ReconnectWait(20 * time.Millisecond), nats.ReconnectJitter(0, 0),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}),
	}, opts...)
	nc, err := nats.Connect(url, opts...)
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	return nc
}

// eventually waits until check returns nil.
func eventually(t *testing.T, check func() error, what string, args ...any) {
	t.Helper()
	tick := time.NewTicker(look)
	defer tick.Stop()
	err := check()
	for end := time.Now().Add(patience); err != nil; err = check() {
		if time.Now().After(end) {
			t.Fatalf("%s: not within %s: %v", fmt.Sprintf(what, args...), patience, err)
		}
		<-tick.C
	}
}

// lookUp reads a consumer's info. A cluster may leave a request unanswered
// while it elects a leader, so no request is waited for long.
func lookUp(t *testing.T, js jetstream.JetStream, stream, consumer string) (jetstream.Consumer, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	return js.Consumer(ctx, stream, consumer)
}

// consumerHas waits until the server's view of a consumer is as wanted.
func consumerHas(t *testing.T, js jetstream.JetStream, stream, consumer string, want func(*jetstream.ConsumerInfo) bool, what string) {
	t.Helper()
	eventually(t, func() error {
		c, err := lookUp(t, js, stream, consumer)
		if err != nil {
			return err
		}
		info := c.CachedInfo()
		if !want(info) {
			return fmt.Errorf("ack pending %d, pending %d, waiting %d, redelivered %d, ack floor %d, groups %+v",
				info.NumAckPending, info.NumPending, info.NumWaiting, info.NumRedelivered, info.AckFloor.Stream, info.PriorityGroups)
		}
		return nil
	}, "consumer %s: %s", consumer, what)
}

// reaches waits until a count is at least n.
func reaches(t *testing.T, n int, what string, count func() int) {
	t.Helper()
	eventually(t, func() error {
		if got := count(); got < n {
			return fmt.Errorf("%d of %d", got, n)
		}
		return nil
	}, "%s", what)
}

// statsBecome waits until the counters of a Subscription are as wanted.
func statsBecome(t *testing.T, sub *jetpull.Subscription, what string, want func(jetpull.Stats) bool) {
	t.Helper()
	eventually(t, func() error {
		if s := sub.Stats(); !want(s) {
			return fmt.Errorf("stats %+v", s)
		}
		return nil
	}, "%s", what)
}

// waiting waits until the consumer holds n pulls.
func (r *rig) waiting(t *testing.T, n int) {
	t.Helper()
	consumerHas(t, r.js, "S", "C", func(i *jetstream.ConsumerInfo) bool { return i.NumWaiting == n }, fmt.Sprintf("%d waiting pulls", n))
}

// ackPending waits until n messages are delivered and not acknowledged.
func (r *rig) ackPending(t *testing.T, n int) {
	t.Helper()
	consumerHas(t, r.js, "S", "C", func(i *jetstream.ConsumerInfo) bool { return i.NumAckPending == n }, fmt.Sprintf("%d ack pending", n))
}

// pending waits until the consumer has n messages to deliver. It may hear of a
// message after its publisher has, and a no-wait pull in between finds nothing.
func (r *rig) pending(t *testing.T, n uint64) {
	t.Helper()
	consumerHas(t, r.js, "S", "C", func(i *jetstream.ConsumerInfo) bool { return i.NumPending == n }, fmt.Sprintf("%d pending", n))
}

// tap is a rig whose subscription goes through a proxy.
type tap struct {
	*rig
	sub   *jetpull.Subscription
	proxy *natstest.Proxy
}

func newTap(t *testing.T, cfg jetstream.ConsumerConfig) *tap {
	t.Helper()
	r := newRig(t)
	r.consumer(t, cfg)
	proxy := natstest.NewProxy(t, r.server.URL())
	return &tap{rig: r, sub: subscribe(t, natstest.JetStream(t, connect(t, proxy.URL())), "S", "C"), proxy: proxy}
}

// result is what a call of Next or Fetch came back with.
type result struct {
	msgs []*jetpull.Msg
	err  error
}

// call runs Fetch, or Next for n of 0, on a goroutine.
func call(ctx context.Context, sub *jetpull.Subscription, n int, opts ...jetpull.NextOption) <-chan result {
	out := make(chan result, 1)
	go func() {
		var r result
		if n == 0 {
			var m *jetpull.Msg
			if m, r.err = sub.Next(ctx, opts...); m != nil {
				r.msgs = []*jetpull.Msg{m}
			}
		} else {
			var fetching []jetpull.FetchOption
			for _, o := range opts {
				fetching = append(fetching, o)
			}
			r.msgs, r.err = sub.Fetch(ctx, n, fetching...)
		}
		out <- r
	}()
	return out
}

// receive waits for what has to come on ch.
func receive[T any](t *testing.T, ch <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(patience):
		var none T
		t.Fatalf("%s: nothing within %s", what, patience)
		return none
	}
}

// served waits for the messages of a call, which has no error.
func served(t *testing.T, ch <-chan result, what string) []*jetpull.Msg {
	t.Helper()
	res := receive(t, ch, what)
	require.NoError(t, res.err, "%s", what)
	return res.msgs
}

// next and fetch are calls that have to succeed.
func next(t *testing.T, sub *jetpull.Subscription, opts ...jetpull.NextOption) *jetpull.Msg {
	t.Helper()
	m, err := sub.Next(t.Context(), opts...)
	require.NoError(t, err)
	return m
}

func fetch(t *testing.T, sub *jetpull.Subscription, n int, opts ...jetpull.FetchOption) []*jetpull.Msg {
	t.Helper()
	msgs, err := sub.Fetch(t.Context(), n, opts...)
	require.NoError(t, err)
	return msgs
}

func requireBodies(t *testing.T, msgs []*jetpull.Msg, want ...string) {
	t.Helper()
	require.Equal(t, want, bodies(msgs))
}

func bodies(msgs []*jetpull.Msg) []string {
	var got []string
	for _, m := range msgs {
		got = append(got, string(m.Data()))
	}
	return got
}

// ackAll acknowledges messages and waits for the server's word.
func ackAll(t *testing.T, msgs ...*jetpull.Msg) {
	t.Helper()
	require.NoError(t, jetpull.ConfirmAcks(t.Context(), msgs...))
}

// tally counts things by key, for many goroutines.
type tally struct {
	mu     sync.Mutex
	counts map[string]int
}

func (c *tally) add(key string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.counts == nil {
		c.counts = map[string]int{}
	}
	c.counts[key]++
	return c.counts[key]
}

func (c *tally) len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.counts)
}

// libSubscriptions is how many inboxes a connection has besides the one that
// nats.go keeps for its own requests.
func libSubscriptions(nc *nats.Conn) int { return max(0, nc.NumSubscriptions()-1) }
