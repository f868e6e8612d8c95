package transport_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/internal/natstest/stage"
	"github.com/jetpull/jetpull/internal/pull"
	"github.com/jetpull/jetpull/internal/transport"
)

// Hooks may use the driver: none but Wrap is called with its lock held.
func TestHooksMayUseTheDriver(t *testing.T) {
	stage.Run(t, stage.Config{}, func(s *stage.Stage) {
		ctx, cancel := context.WithTimeout(s.T.Context(), time.Second)
		defer cancel()
		inboxes, err := transport.CheckInboxes(ctx, s.NC)
		require.NoError(s.T, err)
		over, doubts := errors.New("over"), 0
		var d *transport.Driver
		d = transport.New(s.NC, "$JS.API.CONSUMER.MSG.NEXT.S.C", pull.Limits{}, 10, inboxes, transport.Hooks{
			Doubt: func() {
				doubts++
				d.Do(func(e *pull.Engine, now pull.At) { e.Fail(now, over, false) })
			},
		})
		d.Start()
		s.Peer.Cut() // on a new connection the consumer is in doubt
		c := d.Get(ctx, pull.Ask{Want: 1, Deadline: d.Now() + time.Minute})
		require.ErrorIs(s.T, c.Err, over)
		require.Equal(s.T, 1, doubts)
		require.NoError(s.T, d.Close(ctx, over))
		require.NoError(s.T, d.Stop(ctx))
	})
}

// If the connection is lost before the driver watches it, calls end too.
func TestADriverOnAClosedConnection(t *testing.T) {
	stage.Run(t, stage.Config{}, func(s *stage.Stage) {
		ctx, cancel := context.WithTimeout(s.T.Context(), time.Second)
		defer cancel()
		inboxes, err := transport.CheckInboxes(ctx, s.NC)
		require.NoError(s.T, err)
		s.NC.Close()
		d := transport.New(s.NC, "$JS.API.CONSUMER.MSG.NEXT.S.C", pull.Limits{}, 10, inboxes, transport.Hooks{Doubt: func() {}})
		d.Start()
		c := d.Get(ctx, pull.Ask{Want: 1, Deadline: d.Now() + time.Minute})
		require.ErrorIs(s.T, c.Err, nats.ErrConnectionClosed)
		require.NoError(s.T, d.Close(ctx, errors.New("over")))
		require.NoError(s.T, d.Stop(ctx))
	})
}

type noSink struct{}

func (noSink) Deliver([]pull.Message, bool, error) {}
func (noSink) Problem(error)                       {}

// Effects are carried out in order: the inbox of a demand that leaves at once is subscribed before it is drained, so that no
// subscription is left.
func TestEffectsAreCarriedOutInOrder(t *testing.T) {
	stage.Run(t, stage.Config{}, func(s *stage.Stage) {
		ctx, cancel := context.WithTimeout(s.T.Context(), time.Minute)
		defer cancel()
		inboxes, err := transport.CheckInboxes(ctx, s.NC)
		require.NoError(s.T, err)
		d := transport.New(s.NC, "$JS.API.CONSUMER.MSG.NEXT.S.C", pull.Limits{}, 10, inboxes, transport.Hooks{Doubt: func() {}})
		d.Start()
		demand := pull.Demand{Ask: pull.Ask{Mode: pull.Standing, Window: 1, Workers: 1}, Ref: noSink{}}
		other := pull.Demand{Ask: pull.Ask{Terms: pull.Terms{Priority: 1}, Mode: pull.Standing, Window: 1, Workers: 1}, Ref: noSink{}}
		d.Do(func(e *pull.Engine, now pull.At) {
			e.Post(now, &demand)
			e.Post(now, &other)
			e.Cancel(now, &other, nil)
		})
		require.Len(s.T, s.Pulls(), 2)
		require.NoError(s.T, d.Close(ctx, errors.New("over")))
		require.NoError(s.T, d.Stop(ctx))
		stage.Pass(time.Second)
		require.Zero(s.T, s.NC.NumSubscriptions())
	})
}
