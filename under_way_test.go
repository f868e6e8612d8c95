package jetpull

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
)

// TestAckAllGoesOnWithoutWhatTheServerGaveUp: the server drops a message at MaxDeliver, and its ack floor stays before it.
func TestAckAllGoesOnWithoutWhatTheServerGaveUp(t *testing.T) {
	for _, own := range []bool{true, false} {
		t.Run(fmt.Sprint("own ", own), func(t *testing.T) {
			onStage(t, jetstream.ConsumerConfig{AckPolicy: jetstream.AckAllPolicy, MaxDeliver: 2}, func(t *testing.T, s *stage) {
				var j journal
				r := s.consume(func(_ context.Context, m *Msg) error {
					j.note(m)
					if m.Sequence() != 1 {
						return nil
					}
					if own {
						return m.Nak()
					}
					s.do(func() {
						s.onAck = func(_ int, verb string) {
							if s.pending[1] != nil && verb == "-NAK" { // delivered into nowhere, and then MaxDeliver
								s.pending[1].Stop()
								delete(s.pending, 1)
								s.delivered[1]++
								s.cseqs++
							}
						}
					})
					return errors.New("no")
				})
				s.publish(3)
				pass(time.Minute)
				s.publish(3)
				pass(time.Hour)
				t.Log("own", own, j.all(), s.cseqs)
				n := j.len()
				require.NoError(t, r.stop())
				if n < 6 {
					t.Error("stuck")
				}
			})
		})
	}
}

// TestANakUnderWayIsNoAcknowledgement: another goroutine is between the two.
func TestANakUnderWayIsNoAcknowledgement(t *testing.T) {
	m := &Msg{}
	m.settled.Store(true) // Nak is between its two stores
	if m.fate(false) == acknowledged {
		t.Error("a NAK under way counts as an acknowledgement")
	}
}

// TestADoubleAckThatFailsIsNoAcknowledgement: the loop goes on while another goroutine waits for the confirmation.
func TestADoubleAckThatFailsIsNoAcknowledgement(t *testing.T) {
	onStage(t, jetstream.ConsumerConfig{AckWait: 3 * time.Second}, func(t *testing.T, s *stage) {
		s.publish(2)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var j journal
		for m, err := range s.sub.Messages(ctx, Prefetch(4)) {
			require.NoError(t, err)
			j.note(m)
			if m.Sequence() == 1 && j.len() == 1 {
				go func() {
					m.settled.Store(true) // as DoubleAck does
					<-time.After(time.Second)
					m.settled.Store(false) // it failed
				}()
				<-time.After(10 * time.Millisecond)
				continue
			}
			_ = m.Ack()
		}
		t.Log(j.all(), "acks of 1", s.count("+ACK", 1))
		if j.len() < 3 {
			t.Error("message 1 was acknowledged by the library")
		}
	})
}
