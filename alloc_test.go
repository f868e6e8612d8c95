package jetpull

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/internal/wire"
)

// TestTheRulesAllocateNextToNothing covers a Next on the busy path: claim,
// pull, message.
func TestTheRulesAllocateNextToNothing(t *testing.T) {
	r := newRules("api", "in", limits{}, func() float64 { return 0.5 })
	c := &claim{ready: make(chan struct{}, 1)}
	l := r.laneOf(groupTerms{}, 0, false)
	m := msgWithReply(replyV1)
	now := at(0)
	next := func() {
		now += time.Millisecond
		*c = claim{ready: c.ready, lane: l, want: 1, deadline: now + 5*time.Second}
		c.got = c.one[:0]
		r.post(now, c)
		r.data(now, l.pulls[0].inbox, m, 100, "")
		if !c.done || len(c.got) != 1 {
			t.Fatal("the claim was not served")
		}
		r.actions = r.actions[:0]
	}
	next()
	require.LessOrEqual(t, testing.AllocsPerRun(1000, next), 2.0, "the pull and its reply subject")
}

func TestTakingAMessageAllocatesOnce(t *testing.T) {
	r := newRules("api", "in", limits{}, func() float64 { return 0.5 })
	sub := &nats.Subscription{}
	e := &engine{rules: r, sub: &Subscription{}, inboxes: map[*nats.Subscription]*inbox{}}
	l := r.laneOf(groupTerms{}, 0, false)
	c := &claim{ready: make(chan struct{}, 1), lane: l, want: allRoom, deadline: time.Hour, got: make([]*Msg, 0, allRoom)}
	r.post(0, c)
	e.inboxes[sub] = l.pulls[0].inbox
	raw := &nats.Msg{Sub: sub, Subject: "s.a", Reply: replyV1, Data: []byte("data")}
	allocs := testing.AllocsPerRun(allRoom-10, func() { e.take(0, raw) })
	require.LessOrEqual(t, allocs, 0.1, "messages share their memory")
	raw.Data = make([]byte, slabPayload+1)
	require.NotSame(t, e.newMsg(raw, l.pulls[0].inbox), e.newMsg(raw, l.pulls[0].inbox))
}

func TestAPullRequestAllocatesNothing(t *testing.T) {
	buf := make([]byte, 0, 256)
	req := wire.Request{Batch: 10, Expires: time.Second, NoWait: true, Group: "g", ID: "pin", Priority: 3}
	require.Zero(t, testing.AllocsPerRun(100, func() { buf = req.Append(buf[:0]) }))
}

// TestALargeFetchAllocatesForWhatArrives: n is not what memory is taken for.
func TestALargeFetchAllocatesForWhatArrives(t *testing.T) {
	virtually(t, jetstream.ConsumerConfig{}, func(t *testing.T, s *script) {
		s.publish(3)
		ms, err := s.sub.Fetch(t.Context(), 1_000_000)
		require.NoError(t, err)
		require.Len(t, ms, 3)
		require.LessOrEqual(t, cap(ms), 128)
		require.LessOrEqual(t, s.got()[0].Req.Batch, allRoom, "nor what the channel has no room for")
	})
}
