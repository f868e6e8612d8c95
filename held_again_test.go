package jetpull

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/internal/natstest"
)

// TestLastDeliveriesOfAKeyAreHandledAfterTheEnd: the handler that ends Consume has not let go of its line when the queue stops.
func TestLastDeliveriesOfAKeyAreHandledAfterTheEnd(t *testing.T) {
	for name, opts := range map[string][]Option{"unordered": nil, "by key": {OrderedBy((*Msg).Subject)}, "by key, 4": {Concurrency(4), OrderedBy((*Msg).Subject)}, "all": nil} {
		t.Run(name, func(t *testing.T) {
			cfg := jetstream.ConsumerConfig{MaxDeliver: 1}
			if name == "all" {
				cfg.AckPolicy = jetstream.AckAllPolicy
			}
			onStage(t, cfg, func(t *testing.T, s *stage) {
				s.publish(5)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				var j journal
				var errs atomic.Int64
				err := s.sub.Consume(ctx, func(_ context.Context, m *Msg) error {
					j.note(m)
					<-time.After(100 * time.Millisecond)
					if m.Sequence() == 2 {
						cancel()
					}
					return nil
				}, append(opts, Prefetch(20), OnError(func(error) { errs.Add(1) }))...)
				t.Log("handled", j.all(), "err", err, "OnError", errs.Load(), "unsettled", s.unsettled(), "naks", s.count("-NAK", 0), s.logs)
				if j.len() != 5 {
					t.Error("lost")
				}
			})
		})
	}
}

// TestALineIsLiftedOverASlowLink: a short AckWait, and a server that takes longer than an eighth of it to answer.
func TestALineIsLiftedOverASlowLink(t *testing.T) {
	for name, cfg := range map[string]jetstream.ConsumerConfig{
		"30s": {}, "AckWait 300ms": {AckWait: 300 * time.Millisecond}, "BackOff": {AckWait: 30 * time.Second, BackOff: []time.Duration{200 * time.Millisecond, time.Second, 30 * time.Second}, MaxDeliver: 5},
	} {
		t.Run(name, func(t *testing.T) {
			onStage(t, cfg, func(t *testing.T, s *stage) {
				asked := 0
				s.peer.OnRequest("$JS.API.CONSUMER.INFO.S.C", func(p *natstest.Peer, r natstest.Request) {
					asked++
					time.AfterFunc(50*time.Millisecond, func() { s.tell(p, r) })
				})
				var got []string
				r := s.consume(failOnce(&got, func(*Msg) error {
					s.do(func() {
						s.onAck = func(int, string) {
							if s.pending[1] != nil {
								s.pending[1].Stop()
								delete(s.pending, 1)
							}
						}
					})
					return errors.New("not yet")
				}), OrderedBy((*Msg).Subject))
				s.publish(2)
				pass(30 * time.Minute)
				require.NoError(t, r.stop())
				t.Log(got, "asked", asked)
				require.Len(t, got, 2)
			})
		})
	}
}

// TestCopiesOfWhatHangsDoNotFillTheWindow: where nothing is kept alive, a message that hangs comes again each AckWait.
func TestCopiesOfWhatHangsDoNotFillTheWindow(t *testing.T) {
	for name, opts := range map[string][]Option{"prefetch": {Prefetch(8)}, "adaptive": nil, "by key": {OrderedBy((*Msg).Subject)}} {
		t.Run(name, func(t *testing.T) {
			onStage(t, overdueSoon, func(t *testing.T, s *stage) {
				var j journal
				hang := make(chan struct{})
				r := s.consume(func(_ context.Context, m *Msg) error {
					j.note(m)
					if m.Sequence() == 1 {
						<-hang
					}
					return nil
				}, append(opts, Concurrency(4), KeepAlive(false))...)
				s.publish(1)
				pass(2 * time.Minute)
				s.publishTo("s.b", nil, "2")
				pass(10 * time.Minute)
				t.Log("while one hangs", j.all(), "cseqs", s.cseqs)
				n := j.len()
				close(hang)
				pass(time.Minute)
				t.Log(j.all())
				require.NoError(t, r.stop())
				require.Equal(t, 2, n)
			})
		})
	}
}

// TestTheLastCopyIsTriedAfterTheEnd: the copy of what runs is the last try that the server gives.
func TestTheLastCopyIsTriedAfterTheEnd(t *testing.T) {
	cfg := overdueSoon
	cfg.MaxDeliver = 2
	onStage(t, cfg, func(t *testing.T, s *stage) {
		g := newGraveyard(t, s)
		var calls atomic.Int64
		r := s.consume(func(context.Context, *Msg) error {
			calls.Add(1)
			<-time.After(2500 * time.Millisecond)
			return errors.New("no")
		}, KeepAlive(false), Prefetch(4), MaxAttempts(2), DeadLetter("dead.letters"), OnError(func(e error) { t.Log("OnError", e) }))
		s.publish(1)
		pass(1500 * time.Millisecond)
		require.Equal(t, 2, s.cseqs)
		err := r.stop()
		pass(time.Minute)
		t.Log("calls", calls.Load(), "dead", len(g.dead), "naks", s.count("-NAK", 1), "err", err)
		require.Len(t, g.dead, 1)
	})
}
