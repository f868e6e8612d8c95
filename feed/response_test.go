package feed

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzResponse: whatever a handler returns is a Response or an error, and what ours encodes is decoded.
func FuzzResponse(f *testing.F) {
	for _, seed := range []string{`{"done":true,"gate":3,"data":{"a":1}}`, `{"bytes":"/w=="}`, `{"error":{"message":"x","retry_after":1e300}}`, `null`, `[`, ``} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		resp, err := ParseResponse(text)
		again, encodeErr := encodeReply(resp, err)
		require.NoError(t, encodeErr)
		resp2, err2 := ParseResponse(again)
		if err != nil {
			require.Error(t, err2)
			return
		}
		require.NoError(t, err2)
		require.Equal(t, resp, resp2)
	})
}
