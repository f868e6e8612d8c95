package store

import (
	"testing"

	"github.com/stretchr/testify/require"
)

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
