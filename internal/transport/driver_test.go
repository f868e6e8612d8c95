package transport_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

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
		inbox, err := transport.OpenInbox(ctx, s.NC)
		require.NoError(s.T, err)
		over := errors.New("over")
		var d *transport.Driver
		d = transport.New(s.NC, "$JS.API.CONSUMER.MSG.NEXT.S.C", pull.Limits{}, inbox, transport.Hooks{
			Closed: func(error) error {
				d.Stats("")
				return over
			},
		})
		s.NC.Close()
		synctest.Wait()
		c := d.Get(ctx, pull.Ask{Want: 1})
		require.ErrorIs(s.T, c.Err, over)
		require.NoError(s.T, d.Close(ctx, over))
		require.NoError(s.T, d.Stop(ctx))
	})
}
