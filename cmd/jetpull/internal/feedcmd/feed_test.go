package feedcmd

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestDoubling(t *testing.T) {
	for _, tt := range []struct {
		first   time.Duration
		attempt int
		want    time.Duration
	}{
		{time.Second, 1, time.Second},
		{time.Second, 3, 4 * time.Second},
		{time.Second, 7, time.Minute},
		{time.Second, 1000, time.Minute},
		{0, 20, 0},
		{time.Hour, 1, time.Hour},
		{48 * time.Hour, 17, 48 * time.Hour},
		{48 * time.Hour, 1000, 48 * time.Hour},
	} {
		require.Equal(t, tt.want, doubling(tt.first)(tt.attempt), "%v, attempt %d", tt.first, tt.attempt)
	}
}
