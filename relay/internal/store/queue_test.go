package store

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func FuzzToken(f *testing.F) {
	for _, id := range []string{"", "a", "a.b", "*", ">", " ", "=41", "\x00\xff", "ä€"} {
		f.Add(id)
	}
	f.Fuzz(func(t *testing.T, id string) {
		token := Token(id)
		require.False(t, token == "" || strings.ContainsAny(token, ".*> \r\n\t\x00"), token)
		back, err := ParseToken(token)
		require.NoError(t, err)
		require.Equal(t, id, back)
	})
}

func FuzzParseToken(f *testing.F) {
	for _, token := range []string{"=", "==", "=4", "=ZZ", "a=2Eb", "a.b"} {
		f.Add(token)
	}
	f.Fuzz(func(t *testing.T, token string) {
		if id, err := ParseToken(token); err == nil && strings.Count(token, "=") == 0 {
			require.Equal(t, token, Token(id))
		}
	})
}

func FuzzDecodeEntry(f *testing.F) {
	e := Entry{Headers: map[string]string{"A": "b"}, Payload: []byte("p\n\x00")}
	e.Source, e.Revision = "s", 7
	data, err := e.Encode()
	require.NoError(f, err)
	f.Add(data)
	f.Add([]byte("{}\n"))
	f.Add([]byte("null\nx"))
	f.Fuzz(func(t *testing.T, data []byte) {
		e, err := DecodeEntry(data)
		if err != nil {
			require.ErrorIs(t, err, ErrMalformed)
			return
		}
		again, err := e.Encode()
		if err != nil {
			return
		}
		back, err := DecodeEntry(again)
		require.NoError(t, err)
		require.Equal(t, string(e.Payload), string(back.Payload))
		require.Equal(t, e.Source, back.Source)
		require.Equal(t, e.Revision, back.Revision)
	})
}
