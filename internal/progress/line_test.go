package progress

import (
	"bytes"
	"io"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestLine(t *testing.T) {
	var screen bytes.Buffer
	l := &Line{out: &screen}
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
