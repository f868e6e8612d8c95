package run

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestLiveState(t *testing.T) {
	w := &Run{tally: Tally{Acked: 12_345, Failed: 2, Terminated: 1}, running: 12}
	require.Equal(t, 12_348, w.handled())
	require.Equal(t, []string{"12,345 handled", "7/s", "3 failed", "1,000 pending", "12 in flight"}, w.state(7, "1,000 pending"))
}
