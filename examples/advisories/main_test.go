package main

import (
	"bytes"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var line = regexp.MustCompile(`^group primary: (client \S+ is pinned|the pin was taken: admin)$`)

func TestRun(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), "", &out))
	var pinned, taken int
	for text := range strings.Lines(out.String()) {
		text = strings.TrimSpace(text)
		require.Regexp(t, line, text)
		if strings.HasSuffix(text, "is pinned") {
			pinned++
		} else {
			taken++
		}
	}
	require.Equal(t, moves, taken, out.String())
	require.GreaterOrEqual(t, pinned, moves-1, "after each but the last it was given again: %s", out.String())
}
