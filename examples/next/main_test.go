package main

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRun(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), "", &out))
	require.Equal(t, `next: order 1
next: order 2
next: order 3
ack and next: order 4
ack and next: order 5
ack and next: order 6
8 goroutines: 1000 messages, fewer pulls than messages: true
`, out.String())
}
