package jetpull

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/internal/natstest"
)

// A deletion that shows by a 503 first is one line too, and one of its own after
// another disturbance.
func TestADeletionIsOneLine(t *testing.T) {
	for _, slow := range []time.Duration{0, 50 * time.Millisecond} {
		onStage(t, jetstream.ConsumerConfig{}, func(t *testing.T, s *stage) {
			r := s.consume(func(context.Context, *Msg) error { return nil }, AwaitConsumer())
			for round := range 3 {
				pass(time.Minute)
				s.peer.OnRequest("$JS.API.CONSUMER.INFO.S.C", func(p *natstest.Peer, req natstest.Request) {
					time.AfterFunc(slow, func() {
						p.ReplyError(req.Reply, 404, jetstream.JSErrCodeConsumerNotFound, "consumer not found")
					})
				})
				s.answer(503, "")
				s.endAll(408, "Request Timeout")
				pass(time.Minute)
				warned := s.logs.with("level=WARN")
				require.Len(t, warned, round+1, "%v", s.logs.with("jetpull"))
				require.Contains(t, warned[round], "consumer deleted")
				require.Positive(t, countIs(r.errs.all(), ErrNoResponders), "OnError hears of all")
				s.change(func(*jetstream.ConsumerConfig) {})
				s.peer.OnRequest("$JS.API.CONSUMER.INFO.S.C", s.tell)
				s.relent()
			}
			require.NoError(t, r.stop())
		})
	}
}

// A single 503 goes by without a line: a pull a moment later was answered.
func TestTroublesSayA503WhenItStays(t *testing.T) {
	var tr troubles
	refused, gone, other := &StatusError{Code: 503, is: ErrNoResponders}, goneError(jetstream.ErrConsumerNotFound, &Subscription{}), errors.New("other")
	require.Empty(t, tr.news(1, refused))
	require.Empty(t, tr.news(2, refused), "another pull's")
	require.Equal(t, []error{refused}, tr.news(time.Second, refused))
	require.Empty(t, tr.news(2*time.Second, refused))
	require.Equal(t, []error{gone}, tr.news(3*time.Second, gone))
	require.Empty(t, tr.news(4*time.Second, &StatusError{Code: 409, Description: "Consumer Deleted", is: ErrConsumerDeleted}))

	tr = troubles{}
	require.Empty(t, tr.news(1, refused))
	require.Equal(t, []error{refused, other}, tr.news(2, other))

	tr = troubles{}
	require.Empty(t, tr.news(1, refused))
	require.Equal(t, []error{gone}, tr.news(2, gone))
	require.Empty(t, tr.news(3, refused))
}
