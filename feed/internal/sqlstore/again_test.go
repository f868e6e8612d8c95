package sqlstore

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"
)

var errDeadlock = &pgconn.PgError{Code: "40P01"}

// TestRetry: a transaction that gives way to others is tried again until it is done, the Store's patience is over, or
// the context ends, which the error then says, whatever the driver makes of it.
func TestRetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Store{Dialect: dialects["sqlite"], writer: make(chan struct{}, 1), Patience: 10 * time.Second}
		after := func(d time.Duration, then error) func() error {
			begun := time.Now()
			return func() error {
				if time.Since(begun) < d {
					return errDeadlock
				}
				return then
			}
		}
		require.NoError(t, s.retry(t.Context(), after(9*time.Second, nil)))
		require.ErrorIs(t, s.retry(t.Context(), after(time.Minute, nil)), ErrConflict)
		broken := errors.New("broken")
		require.Equal(t, broken, s.retry(t.Context(), after(time.Second, broken)))
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		require.ErrorIs(t, s.retry(ctx, after(time.Minute, nil)), context.DeadlineExceeded)
		interrupted := errors.New("interrupted")
		ctx, cancel = context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		err := s.retry(ctx, func() error {
			<-ctx.Done()
			return interrupted
		})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, interrupted)
	})
}
