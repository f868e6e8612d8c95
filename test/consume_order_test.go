package test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/internal/natstest"
	"github.com/jetpull/jetpull/internal/wire"
)

// The tests here make faults at the very moment at which a handler fails, so that
// what says so to the server is lost. The message then comes again after AckWait,
// and its key has to wait for it.

// longWait is an AckWait over the five seconds that a key waits where nothing can have
// been lost.
const longWait = 8 * time.Second

// failing has every thirteenth message fail the first time. A handler that fails
// can be held up until a fault has been made.
type failing struct {
	tries tally
	armed atomic.Bool
	begun chan uint64 // the message whose handler is held up
	goOn  chan struct{}
}

func newFailing() *failing {
	return &failing{begun: make(chan uint64, 1), goOn: make(chan struct{})}
}

func (f *failing) handle(m *jetpull.Msg) error {
	<-time.After(time.Millisecond)
	seq := m.Sequence()
	if seq%13 != 0 || f.tries.add(fmt.Sprint(seq)) > 1 {
		return nil
	}
	if f.armed.CompareAndSwap(true, false) {
		f.begun <- seq
		<-f.goOn
	}
	return errors.New("the first time")
}

// holdUp waits for a handler that is about to fail.
func (f *failing) holdUp(t *testing.T) uint64 {
	t.Helper()
	f.armed.Store(true)
	return receive(t, f.begun, "a handler that fails")
}

func (f *failing) letFail() { f.goOn <- struct{}{} }

func TestConsumeOrderOverCutsWhileHandlersFail(t *testing.T) {
	t.Parallel()
	w := newTap(t, jetstream.ConsumerConfig{AckWait: longWait, MaxAckPending: -1})
	book := keepLedger(t, w.nc, jetstream.AckExplicitPolicy)
	c, failing := newChecker(), newFailing()
	run := consume(t, w.sub, c.noting(failing.handle), jetpull.Concurrency(4), byKey)
	f := feed(t, w.js, 200)
	for range 10 {
		c.wait(t, c.count()+20, patience)
		seq := failing.holdUp(t)
		w.proxy.BlackHole(true)
		failing.letFail()
		eventually(t, func() error {
			if !slices.ContainsFunc(w.wire.Ops(), func(op natstest.Op) bool {
				a, ok := wire.ParseAck(op.Subject)
				return ok && a.StreamSeq == seq && strings.HasPrefix(string(op.Body), "-NAK")
			}) {
				return fmt.Errorf("no NAK of message %d on the wire", seq)
			}
			return nil
		}, "the NAK is sent, and lost")
		c.Fault(c.inFlight(t, w.js, book))
		w.proxy.Cut()
		w.proxy.BlackHole(false)
	}
	total := f.end(t)
	c.wait(t, total, patience)
	w.ackPending(t, 0)
	run.end(t)
	c.check(t, total)
}

func TestConsumeOrderOverStepDownsWhileHandlersFail(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("three servers and six elections take half a minute")
	}
	cluster := natstest.RunCluster(t)
	nc, pub := cluster.Connect(t, nats.DontRandomize()), cluster.Connect(t)
	r := &rig{nc: pub, js: natstest.JetStream(t, pub)}
	natstest.StreamWith(t, r.js, jetstream.StreamConfig{Name: "S", Subjects: []string{"s.>"}, Replicas: 3})
	r.consumer(t, jetstream.ConsumerConfig{AckWait: longWait, MaxAckPending: -1})
	cluster.WaitReady(t, "S", "C")
	sub := subscribe(t, natstest.JetStream(t, nc), "S", "C")
	c, failing := newChecker(), newFailing()
	run := consume(t, sub, c.noting(failing.handle), jetpull.Concurrency(4), byKey)
	f := feed(t, r.js, 100)
	for range 6 {
		c.wait(t, c.count()+20, electing)
		failing.holdUp(t)
		r.stepDown(t)
		failing.letFail() // while there is no leader that could hear of it
		c.Fault(c.inFlight(t, r.js, nil))
	}
	total := f.end(t)
	c.wait(t, total, electing)
	r.ackPending(t, 0)
	run.end(t)
	c.check(t, total)
}

// stepDown has the consumer's leader step down, and does not wait for another.
func (r *rig) stepDown(t *testing.T) {
	t.Helper()
	eventually(t, func() error {
		answer, err := r.nc.Request("$JS.API.CONSUMER.LEADER.STEPDOWN.S.C", nil, patience)
		if err != nil {
			return err
		}
		if !strings.Contains(string(answer.Data), `"success":true`) {
			return fmt.Errorf("answered with %s", answer.Data)
		}
		return nil
	}, "the leader steps down")
}
