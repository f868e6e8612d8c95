package main

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRun(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), "", &out))
	require.Equal(t, `50 pending: the far region stays out
150 pending: the far region takes 10
few pending, but the near region is stuck: the far region takes 10
`, out.String())
}
