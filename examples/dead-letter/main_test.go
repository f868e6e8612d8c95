package main

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRun(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), "", &out))
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	require.Len(t, lines, 9, out.String())
	failed := lines[:4] // two attempts for each of two orders, interleaved
	slices.Sort(failed)
	require.Equal(t, []string{
		"order 2, attempt 1: retried: sold out",
		"order 2, attempt 2: dead_lettered: sold out",
		"order 4, attempt 1: retried: sold out",
		"order 4, attempt 2: dead_lettered: sold out",
	}, failed)
	require.Equal(t, "3 shipped, 2 dead", lines[4])
	require.Equal(t, "new stock has come", lines[5])
	requeued := lines[6:8]
	slices.Sort(requeued)
	require.Equal(t, []string{
		"requeued order 2 of sequence 2, which was tried 2 times: sold out",
		"requeued order 4 of sequence 4, which was tried 2 times: sold out",
	}, requeued)
	require.Equal(t, "2 shipped, 0 dead", lines[8])
}
