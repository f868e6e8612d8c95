package test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/internal/natstest"
)

// checker is the history of a run under faults. In the end it states that
// every message was handled, that there were no more duplicates than messages
// in flight at the faults, and that each key was handled in order. A message that
// a fault took from the client comes again when later ones have been handled, so
// the order is that of first deliveries.
type checker struct {
	mu       sync.Mutex
	handled  map[uint64]int
	order    map[string]uint64 // last sequence of a key
	busy     map[string]uint64 // being handled
	inFlight int               // at all faults
	faults   int
	problems []string
	progress chan struct{} // closed with the next message
}

func newChecker() *checker {
	return &checker{
		handled: map[uint64]int{}, order: map[string]uint64{}, busy: map[string]uint64{},
		progress: make(chan struct{}),
	}
}

// handler notes what it is given, takes d for each, and does not fail.
func (c *checker) handler(d time.Duration) jetpull.Handler {
	return func(_ context.Context, m *jetpull.Msg) error {
		c.begin(m.Subject(), m.Sequence(), m.Delivered())
		if d > 0 {
			<-time.After(d)
		}
		c.end(m.Subject(), m.Sequence())
		return nil
	}
}

func (c *checker) begin(key string, seq, delivered uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if other, ok := c.busy[key]; ok {
		c.problem("message %d of key %s was started while %d was being handled", seq, key, other)
	}
	c.busy[key] = seq
	if delivered > 1 {
		return
	}
	if last := c.order[key]; seq <= last {
		c.problem("message %d of key %s was handled after %d", seq, key, last)
	}
	c.order[key] = seq
}

func (c *checker) end(key string, seq uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.busy, key)
	c.handled[seq]++
	close(c.progress)
	c.progress = make(chan struct{})
}

// problem notes what must not be. The lock is held.
func (c *checker) problem(format string, args ...any) {
	if len(c.problems) < 20 {
		c.problems = append(c.problems, fmt.Sprintf(format, args...))
	}
}

// fault notes a fault with so many messages in flight: delivered by the
// server, and not known to it as settled.
func (c *checker) fault(inFlight int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.faults++
	c.inFlight += inFlight
}

func (c *checker) count() (messages, handlings int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, n := range c.handled {
		handlings += n
	}
	return len(c.handled), handlings
}

// wait waits until total messages have been handled.
func (c *checker) wait(t *testing.T, total int, within time.Duration) {
	t.Helper()
	timeout := time.After(within)
	for {
		c.mu.Lock()
		n, progress := len(c.handled), c.progress
		c.mu.Unlock()
		if n >= total {
			return
		}
		select {
		case <-progress:
		case <-timeout:
			t.Fatalf("%d of %d messages were handled within %s", n, total, within)
		}
	}
}

// verdict is what is wrong with the history of the messages 1 to total.
func (c *checker) verdict(total int) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	wrong := append([]string(nil), c.problems...)
	lost, duplicates := 0, 0
	for seq := range uint64(total) {
		if n := c.handled[seq+1]; n == 0 {
			lost++
		} else {
			duplicates += n - 1
		}
	}
	if lost > 0 {
		wrong = append(wrong, fmt.Sprintf("%d of %d messages were not handled", lost, total))
	}
	if len(c.handled)+lost > total {
		wrong = append(wrong, fmt.Sprintf("%d messages were handled that nobody published", len(c.handled)+lost-total))
	}
	if duplicates > c.inFlight {
		wrong = append(wrong, fmt.Sprintf("%d duplicates, but only %d messages in flight at %d faults", duplicates, c.inFlight, c.faults))
	}
	return wrong
}

// check fails the test if something is wrong with the history.
func (c *checker) check(t *testing.T, total int) {
	t.Helper()
	require.Empty(t, c.verdict(total))
	_, handlings := c.count()
	t.Logf("%d messages, %d duplicates; %d in flight at %d faults", total, handlings-total, c.inFlight, c.faults)
}

func TestChecker(t *testing.T) {
	t.Parallel()
	handle := func(c *checker, key string, seq, delivered uint64) {
		c.begin(key, seq, delivered)
		c.end(key, seq)
	}
	for name, tc := range map[string]struct {
		play func(*checker)
		want []string
	}{
		"all is well": {func(c *checker) {
			handle(c, "a", 1, 1)
			handle(c, "b", 3, 1)
			handle(c, "a", 2, 1)
		}, nil},
		"lost": {func(c *checker) { handle(c, "a", 1, 1); handle(c, "a", 3, 1) }, []string{"1 of 3 messages were not handled"}},
		"duplicate without a fault": {func(c *checker) {
			for seq := range uint64(3) {
				handle(c, "a", seq+1, 1)
			}
			handle(c, "a", 2, 2)
		}, []string{"1 duplicates, but only 0 messages in flight at 0 faults"}},
		"duplicate of a fault": {func(c *checker) {
			for seq := range uint64(3) {
				handle(c, "a", seq+1, 1)
			}
			c.fault(1)
			handle(c, "a", 2, 2)
		}, nil},
		"out of order": {func(c *checker) {
			handle(c, "a", 2, 1)
			handle(c, "a", 1, 1)
			handle(c, "a", 3, 1)
		}, []string{"message 1 of key a was handled after 2"}},
		"redelivered after a fault": {func(c *checker) {
			handle(c, "a", 2, 1)
			handle(c, "a", 1, 2)
			handle(c, "a", 3, 1)
		}, nil},
		"two of a key at a time": {func(c *checker) {
			c.begin("a", 1, 1)
			c.begin("a", 2, 1)
			c.end("a", 1)
			c.end("a", 2)
			handle(c, "a", 3, 1)
		}, []string{"message 2 of key a was started while 1 was being handled"}},
		"from nowhere": {func(c *checker) {
			for seq := range uint64(4) {
				handle(c, "a", seq+1, 1)
			}
		}, []string{"1 messages were handled that nobody published"}},
	} {
		c := newChecker()
		tc.play(c)
		require.Equal(t, tc.want, c.verdict(3), name)
	}
}

// feeder publishes messages with changing keys until it is stopped, over a
// connection of its own, each exactly once.
type feeder struct {
	stop  chan struct{}
	total chan int
}

const feedKeys = 7

// feed starts to publish at about the given rate per second.
func feed(t *testing.T, js jetstream.JetStream, rate int) *feeder {
	t.Helper()
	f := &feeder{stop: make(chan struct{}), total: make(chan int, 1)}
	go func() {
		n := 0
		defer func() { f.total <- n }()
		tick := time.NewTicker(time.Second / time.Duration(rate))
		defer tick.Stop()
		for {
			select {
			case <-f.stop:
				return
			case <-t.Context().Done():
				return
			case <-tick.C:
			}
			if !publishOnce(t, js, fmt.Sprintf("s.k%d", n%feedKeys), fmt.Sprint(n+1)) {
				return
			}
			n++
		}
	}()
	return f
}

// publishOnce tries until the message is stored; its id lets the stream keep
// one.
func publishOnce(t *testing.T, js jetstream.JetStream, subject, id string) bool {
	for t.Context().Err() == nil {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		_, err := js.Publish(ctx, subject, []byte(id), jetstream.WithMsgID(id))
		cancel()
		if err == nil {
			return true
		}
	}
	return false
}

// end stops publishing and returns how many messages there are.
func (f *feeder) end(t *testing.T) int {
	t.Helper()
	close(f.stop)
	return receive(t, f.total, "the end of publishing")
}

// consuming is a Consume on a goroutine.
type consuming struct {
	stop context.CancelFunc
	done chan error
}

func consume(t *testing.T, sub *jetpull.Subscription, h jetpull.Handler, opts ...jetpull.Option) *consuming {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	c := &consuming{stop: stop, done: make(chan error, 1)}
	go func() { c.done <- sub.Consume(ctx, h, opts...) }()
	t.Cleanup(stop)
	return c
}

// end stops Consume, which has to end well.
func (c *consuming) end(t *testing.T) {
	t.Helper()
	c.stop()
	require.NoError(t, receive(t, c.done, "end of Consume"))
}

// inFlight is how many messages the server has delivered and not settled.
func inFlight(t *testing.T, js jetstream.JetStream) int {
	t.Helper()
	n := 0
	consumerHas(t, js, "S", "C", func(i *jetstream.ConsumerInfo) bool { n = i.NumAckPending; return true }, "info")
	return n
}

// cutOff takes the client behind a proxy away from the server, runs f, notes
// what was in flight, and lets the client back. js is not behind the proxy.
func (c *checker) cutOff(t *testing.T, proxy *natstest.Proxy, js jetstream.JetStream, f func()) {
	t.Helper()
	proxy.Refuse(true)
	proxy.Cut()
	f()
	c.fault(inFlight(t, js))
	proxy.Refuse(false)
}
