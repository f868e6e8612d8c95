package streams

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var oddIDs = []string{
	"a", "sample-channel", "with.dot", "star*", ">", "a b", " ", "=", "==", "=2E", "ünïcode", "日本語", "%2F", "a/b",
	"..", ".", "\x00", "\xff\xfe", "new\nline", strings.Repeat("x", 200), strings.Repeat("é", 200), strings.Repeat(".", 67), strings.Repeat(".", 66),
}

func TestTokenRoundTrip(t *testing.T) {
	seen := map[string]string{}
	for _, id := range oddIDs {
		token := EncodeToken(id)
		checkToken(t, id, token)
		require.NotContains(t, seen, token, "%q and %q share a token", id, seen[token])
		seen[token] = id
	}
}

func checkToken(t *testing.T, id, token string) {
	t.Helper()
	require.NotEmpty(t, token)
	require.LessOrEqual(t, len(token), maxTokenLen)
	require.Equal(t, -1, strings.IndexAny(token, " .*>\t\r\n\x00"), "token %q is no subject token", token)
	back, err := decodeToken(token)
	if errors.Is(err, ErrHashed) {
		require.Greater(t, 3*len(id), maxTokenLen, "a short ID was hashed")
		return
	}
	require.NoError(t, err)
	require.Equal(t, id, back)
}

func FuzzToken(f *testing.F) {
	for _, id := range oddIDs {
		f.Add(id)
	}
	f.Fuzz(func(t *testing.T, s string) {
		checkToken(t, s, EncodeToken(s))
		if id, err := decodeToken(s); err == nil && EncodeToken(id) == s {
			checkToken(t, id, s)
		}
	})
}
