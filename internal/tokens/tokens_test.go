package tokens

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSame(t *testing.T) {
	require.True(t, Same("a", "a"))
	require.False(t, Same("a", "b"))
	require.False(t, Same("a", ""))
	require.False(t, Same("", ""))
}

func FuzzSubject(f *testing.F) {
	for _, id := range []string{"", "a", "a.b", "*", ">", " ", "=41", "\x00\xff", "ä€"} {
		f.Add(id)
	}
	f.Fuzz(func(t *testing.T, id string) {
		token := Subject(id)
		require.False(t, token == "" || strings.ContainsAny(token, ".*> \r\n\t\x00"), token)
		back, err := ParseSubject(token)
		require.NoError(t, err)
		require.Equal(t, id, back)
	})
}

func FuzzParseSubject(f *testing.F) {
	for _, token := range []string{"=", "==", "=4", "=ZZ", "a=2Eb", "a.b"} {
		f.Add(token)
	}
	f.Fuzz(func(t *testing.T, token string) {
		if id, err := ParseSubject(token); err == nil && strings.Count(token, "=") == 0 {
			require.Equal(t, token, Subject(id))
		}
	})
}
