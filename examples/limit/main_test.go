package main

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRun(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), "", &out))
	require.Regexp(t, `^30 calls for ada in \d+s, at most [12] at a time; 5 for grace\n$`, out.String())
}
