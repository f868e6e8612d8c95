package tokens

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSame(t *testing.T) {
	require.True(t, Same("a", "a"))
	require.False(t, Same("a", "b"))
	require.False(t, Same("a", ""))
	require.False(t, Same("", ""))
}
