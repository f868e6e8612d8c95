package progress

import (
	"bytes"
	"io"
	"testing"

	"github.com/stretchr/testify/require"
)

// A line that the terminal wraps is not replaced by the next one. So the first parts are shown, and of the rest those that fit.
func TestLineFitsTheTerminal(t *testing.T) {
	for width, want := range map[int]string{
		0:  "12,345 handled, 896/s, 1,000 pending, 3 failed, 12 in flight",
		40: "12,345 handled, 896/s, 1,000 pending",
		34: "12,345 handled, 896/s, 3 failed",
		20: "12,345 handled",
		9:  "12,345 …",
	} {
		var screen bytes.Buffer
		l := &Line{out: &screen, width: func() int { return width }}
		l.Set("12,345 handled", "896/s", "1,000 pending", "3 failed", "12 in flight")
		require.Equal(t, "\r\x1b[K"+want, screen.String(), width)
	}
}

func TestLine(t *testing.T) {
	var screen bytes.Buffer
	l := &Line{out: &screen, width: func() int { return 0 }}
	l.Set("1 handled")
	_, err := lineOver{l, &screen}.Write([]byte("a problem\n"))
	require.NoError(t, err)
	l.Clear()
	require.Equal(t, "\r\x1b[K1 handled\r\x1b[Ka problem\n1 handled\r\x1b[K", screen.String())
	none := NewLine(io.Discard)
	require.Nil(t, none, "it is no terminal")
	none.Set("nothing")
	none.Clear()
	require.Equal(t, io.Discard, none.Over(io.Discard))
}
