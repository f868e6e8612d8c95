package domain

import (
	"errors"
	"fmt"
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
		token := SubjectToken(id)
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
	if errors.Is(err, errHashed) {
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
		checkToken(t, s, SubjectToken(s))
		if id, err := decodeToken(s); err == nil && SubjectToken(id) == s {
			checkToken(t, id, s)
		}
	})
}

var errHashed = errors.New("the token is a hash")

// decodeToken is the inverse of SubjectToken. It fails for a hashed ID.
func decodeToken(token string) (string, error) {
	if token == "==" {
		return "", nil
	}
	if strings.HasPrefix(token, "==") {
		return "", errHashed
	}
	if !strings.Contains(token, "=") {
		return token, nil
	}
	b := make([]byte, 0, len(token))
	for i := 0; i < len(token); i++ {
		c := token[i]
		if c != '=' {
			b = append(b, c)
			continue
		}
		if i+2 >= len(token) {
			return "", fmt.Errorf("token %q ends inside an escape", token)
		}
		hi, lo := strings.IndexByte("0123456789ABCDEF", token[i+1]), strings.IndexByte("0123456789ABCDEF", token[i+2])
		if hi < 0 || lo < 0 {
			return "", fmt.Errorf("token %q has a bad escape at %d", token, i)
		}
		b = append(b, byte(hi<<4|lo))
		i += 2
	}
	return string(b), nil
}
