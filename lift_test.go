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

// failOnce is a handler that fails the first delivery of message 1, after doing
// something. It notes what it gets, and when.
func failOnce(got *[]string, first func(m *Msg) error) Handler {
	start := time.Now()
	return func(_ context.Context, m *Msg) error {
		*got = append(*got, fmt.Sprintf("%d(%d)@%v", m.Sequence(), m.Delivered(), time.Since(start).Round(time.Second)))
		if m.Sequence() == 1 && m.Delivered() == 1 {
			return first(m)
		}
		return nil
	}
}

// A failed message holds back its key until it is settled, whatever became of its
// NAK: one that got lost is made up for by AckWait, and later where there is no
// leader or the consumer is paused.
func TestAFailedMessageHoldsItsKeyInADisturbance(t *testing.T) {
	failed := errors.New("not yet")
	for _, tt := range []struct {
		name    string
		first   func(s *stage) error
		then    func(s *stage)
		handled string // the second try
	}{
		{"a change of leader", func(s *stage) error {
			s.do(func() { s.deaf = true })
			s.endAll(409, "Leadership Change")
			return failed
		}, func(s *stage) { s.do(func() { s.deaf = false }) }, "1(2)@30s"},
		{"a connection that is cut", func(s *stage) error {
			s.do(func() { s.deaf = true })
			return failed
		}, func(s *stage) { s.peer.Cut(); s.forgetAll(); s.do(func() { s.deaf = false }) }, "1(2)@30s"},
		{"no leader for a while", func(s *stage) error {
			s.do(func() { s.deaf = true })
			s.endAll(409, "Leadership Change")
			s.answer(503, "")
			return failed
		}, func(s *stage) {
			pass(20 * time.Second)
			s.relent()
			s.do(func() { s.deaf = false })
		}, "1(2)@30s"},
		{"a consumer that is paused", func(s *stage) error {
			s.do(func() { s.paused = true })
			return failed
		}, func(s *stage) {
			pass(40 * time.Second)
			s.do(func() { s.paused = false; s.serve() })
		}, "1(2)@40s"},
		{"a delay", func(*stage) error { return Retry(8*time.Second, failed) }, func(*stage) {}, "1(2)@8s"},
		{"the handler's own NAK with a delay", nil, func(*stage) {}, "1(2)@8s"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			onStage(t, jetstream.ConsumerConfig{}, func(t *testing.T, s *stage) {
				s.peer.OnRequest("$JS.API.CONSUMER.INFO.S.C", s.tell)
				var got []string
				r := s.consume(failOnce(&got, func(m *Msg) error {
					if tt.first == nil {
						return m.NakWithDelay(8 * time.Second)
					}
					return tt.first(s)
				}), OrderedBy((*Msg).Subject))
				s.publish(5)
				pass(10 * time.Millisecond)
				tt.then(s)
				pass(5 * time.Minute)
				require.NoError(t, r.stop())
				require.Len(t, got, 6)
				require.Equal(t, tt.handled, got[1])
				for i, rest := range got[2:] {
					require.Contains(t, rest, fmt.Sprintf("%d(1)@", i+2))
				}
			})
		})
	}
}

// One that went to another client holds its key up for no more than 5 s where
// nothing was disturbed.
func TestAFailedMessageThatGoesElsewhereHoldsItsKeyBriefly(t *testing.T) {
	onStage(t, jetstream.ConsumerConfig{}, func(t *testing.T, s *stage) {
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
		pass(time.Minute)
		require.NoError(t, r.stop())
		require.Len(t, got, 2)
		require.Contains(t, []string{"2(1)@5s", "2(1)@6s"}, got[1])
	})
}

func TestHasQuorum(t *testing.T) {
	away, here := &jetstream.PeerInfo{Active: time.Minute}, &jetstream.PeerInfo{Active: time.Second}
	for _, tt := range []struct {
		replicas []*jetstream.PeerInfo
		want     bool
	}{
		{nil, true},
		{[]*jetstream.PeerInfo{here, here}, true},
		{[]*jetstream.PeerInfo{here, away}, true},
		{[]*jetstream.PeerInfo{away, away}, false},
		{[]*jetstream.PeerInfo{here, {Offline: true}}, true},
		{[]*jetstream.PeerInfo{{Offline: true}, {Offline: true, Active: time.Second}}, false},
		{[]*jetstream.PeerInfo{here, here, away, away}, true},
		{[]*jetstream.PeerInfo{here, away, away, away}, false},
	} {
		require.Equal(t, tt.want, hasQuorum(&jetstream.ClusterInfo{Replicas: tt.replicas}))
	}
	require.True(t, hasQuorum(nil))
}
