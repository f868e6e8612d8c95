package main

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRun(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), "", &out))
	var paid, again, most, unacknowledged, pending int
	_, err := fmt.Sscanf(out.String(), "%d paid, %d tried again, at most %d open; the server has %d unacknowledged and %d to deliver\n",
		&paid, &again, &most, &unacknowledged, &pending)
	require.NoError(t, err, "output %q", out.String())
	require.Equal(t, payments, paid)
	require.Equal(t, 3, again, "of 23 calls each seventh")
	require.Greater(t, most, 1, "many wait at a time")
	require.LessOrEqual(t, most, window)
	require.Zero(t, unacknowledged)
	require.Zero(t, pending)
}
