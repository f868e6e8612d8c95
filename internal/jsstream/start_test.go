package jsstream

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// A request that gets no answer, as one of two that make the same stream at the same time, is soon repeated; where nobody
// answers, the repetitions get rarer.
func TestInsistRepeatsSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		var asked []time.Duration
		require.NoError(t, Insist(t.Context(), func(ctx context.Context) error {
			asked = append(asked, time.Since(begin))
			if len(asked) == 6 {
				return nil
			}
			<-ctx.Done()
			return ctx.Err()
		}))
		want := []time.Duration{0}
		for _, wait := range []time.Duration{firstAttempt, 2 * firstAttempt, 4 * firstAttempt, AttemptTimeout, AttemptTimeout} {
			want = append(want, want[len(want)-1]+wait+RetryPause)
		}
		require.Equal(t, want, asked)
	})
}
