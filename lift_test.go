package jetpull

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/internal/natstest"
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

// One that nobody gets because the consumer has too little to do for pulls that
// overflow holds its key up until it comes: it is not with another client.
func TestAFailedMessageHoldsItsKeyWhileNothingOverflows(t *testing.T) {
	for _, tt := range []struct {
		name    string
		options []Option
		idle    jetstream.ConsumerInfo // nothing overflows
	}{
		{"MinAckPending", []Option{MinAckPending(10)}, jetstream.ConsumerInfo{NumAckPending: 9}},
		{"MinPending", []Option{MinPending(10)}, jetstream.ConsumerInfo{NumPending: 9, NumAckPending: 100}},
		{"both", []Option{MinPending(10), MinAckPending(10)}, jetstream.ConsumerInfo{NumPending: 9, NumAckPending: 9}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cfg := jetstream.ConsumerConfig{PriorityPolicy: jetstream.PriorityPolicyOverflow, PriorityGroups: []string{"g"}}
			onStage(t, cfg, func(t *testing.T, s *stage) {
				info := tt.idle
				info.Stream, info.Name, info.Config = "S", "C", s.cfg
				info.Config.Name = "C"
				s.peer.OnRequest("$JS.API.CONSUMER.INFO.S.C", func(p *natstest.Peer, r natstest.Request) { p.ReplyJSON(r.Reply, info) })
				var got []string
				r := s.consume(failOnce(&got, func(*Msg) error {
					s.do(func() { s.paused = true })
					return errors.New("not yet")
				}), OrderedBy((*Msg).Subject))
				s.publish(2)
				pass(time.Minute)
				require.Len(t, got, 1)
				s.do(func() { s.paused = false; s.serve() })
				pass(time.Second)
				require.NoError(t, r.stop())
				require.Equal(t, []string{"1(1)@0s", "1(2)@1m0s", "2(1)@1m0s"}, got)
			}, append(tt.options, Group("g"))...)
		})
	}
}

func TestServed(t *testing.T) {
	info := &jetstream.ConsumerInfo{NumPending: 5, NumAckPending: 7}
	for terms, want := range map[groupTerms]bool{
		{}:                                 true,
		{minPending: 5}:                    true,
		{minPending: 6}:                    false,
		{minAckPending: 7}:                 true,
		{minAckPending: 8}:                 false,
		{minPending: 6, minAckPending: 7}:  true,
		{minPending: 5, minAckPending: 8}:  true,
		{minPending: 6, minAckPending: 10}: false,
	} {
		require.Equal(t, want, terms.served(info), "%+v", terms)
	}
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
