package progress

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestClip(t *testing.T) {
	require.Equal(t, "größe\nlong…\n", clip("größe\nlonger than that\n", 5, 9))
	require.Equal(t, "lo…\nab\n", clip("long\nab\n", 3, 9))
	require.Equal(t, "1\n2\n", clip("1\n2\n", 9, 3), "behind the last line the cursor has one of its own")
	require.Equal(t, "1\n2\n", clip("1\n2\n3\n", 9, 3))
	require.Equal(t, "1\n", clip("1\n2\n", 9, 1))
	require.Equal(t, "as it is\n", Fit(&bytes.Buffer{}, "as it is\n"))
}
