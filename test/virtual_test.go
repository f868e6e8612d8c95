package test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/internal/natstest"
	"github.com/jetpull/jetpull/internal/natstest/model"
)

// roundTrip is what a frame and its answer take in a world, and slack what a
// test allows for the few of them that a step needs.
const (
	roundTrip = 2 * time.Millisecond
	slack     = 25 * roundTrip
)

// world is consumer "C" of stream "S" on the model of a server, with a stream
// "DEAD" for dead letters, in virtual time. A bubble must not run beside other
// tests that use nats.go, so tests with a world are not parallel.
type world struct {
	t        *testing.T
	model    *model.Model
	consumer *model.Consumer
	nc       *nats.Conn
	sub      *jetpull.Subscription
	began    time.Time
	held     *jetpull.Msg // by an obstacle
	other    *nats.Conn   // of another client
}

// virtually runs a test in virtual time. The bubble fails if the test leaves a
// goroutine behind.
func virtually(t *testing.T, cfg jetstream.ConsumerConfig, test func(*testing.T, *world), opts ...jetpull.Option) {
	t.Helper()
	virtuallyOn(t, model.Config{}, cfg, test, opts...)
}

// virtuallyOn is virtually on servers of another kind. The way to them takes
// half of a roundTrip unless they say otherwise.
func virtuallyOn(t *testing.T, servers model.Config, cfg jetstream.ConsumerConfig, test func(*testing.T, *world), opts ...jetpull.Option) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		if servers.Up.Max == 0 {
			servers.Up = model.Delay{Min: roundTrip / 2, Max: roundTrip / 2}
			servers.Down = servers.Up
		}
		w := &world{t: t, began: time.Now(), model: model.New(t, servers)}
		w.model.AddStream("S", "s.>")
		w.model.AddStream("DEAD", "dead.>")
		cfg.Durable = "C"
		w.consumer = w.model.AddConsumer("S", cfg)
		w.nc, w.sub = w.client(opts...)
		test(t, w)
	})
}

// client is one more process with a Subscription to the consumer.
func (w *world) client(opts ...jetpull.Option) (*nats.Conn, *jetpull.Subscription) {
	w.t.Helper()
	nc := w.model.Connect(w.t, nats.ReconnectWait(50*time.Millisecond), nats.ReconnectJitter(0, 0))
	sub, err := jetpull.Subscribe(w.t.Context(), natstest.JetStream(w.t, nc), "S", "C", opts...)
	require.NoError(w.t, err)
	w.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
		defer cancel()
		assert.NoError(w.t, sub.Close(ctx), "close in cleanup")
	})
	return nc, sub
}

// publish stores n messages under one subject.
func (w *world) publish(subject string, n int) {
	for range n {
		w.model.Publish(subject, nil, []byte(subject))
	}
}

// now is the time since the test began.
func (w *world) now() time.Duration { return time.Since(w.began) }

// events are what happened to a message, or for 0 to all, of the given kinds.
func (w *world) events(seq uint64, kinds ...model.Kind) (found []model.Event) {
	for _, e := range w.model.History() {
		if e.Consumer == "C" && (seq == 0 || e.Seq == seq) && slices.Contains(kinds, e.Kind) {
			found = append(found, e)
		}
	}
	return found
}

// pass lets virtual time pass.
func pass(d time.Duration) { <-time.After(d) }

// until lets virtual time pass until a condition holds.
func (w *world) until(ok func() bool, what string, args ...any) {
	w.t.Helper()
	for deadline := w.now() + time.Hour; !ok(); pass(roundTrip) {
		if w.now() > deadline {
			w.t.Fatalf("%s: not within an hour", fmt.Sprintf(what, args...))
		}
	}
}

// settled waits until the server has nothing more to deliver and nothing is pending.
func (w *world) settled() {
	w.t.Helper()
	w.until(func() bool {
		s := w.consumer.State()
		return s.NumPending == 0 && s.NumAckPending == 0
	}, "all is settled")
}

// requests are those that clients have sent to a subject of the API.
func (w *world) requests(subject string) (n int) {
	for _, op := range w.model.Peer().Ops() {
		if strings.HasPrefix(op.Subject, subject) {
			n++
		}
	}
	return n
}
