package feed

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzResponse: whatever a handler returns is a Response or an error, and what ours encodes is decoded.
func FuzzResponse(f *testing.F) {
	for _, seed := range []string{
		`{"done":true,"gate":3,"data":{"a":1}}`, `{"bytes":"/w=="}`, `{"error":{"message":"x","retry_after":1e300}}`, `null`,
		`[`, ``,
	} {
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

// TestNullData: a Response without Data, encoded by encoding/json, has the data null, which leaves the item's as it is.
func TestNullData(t *testing.T) {
	text, err := json.Marshal(Response{Done: true})
	require.NoError(t, err)
	require.Contains(t, string(text), `"data":null`)
	resp, err := ParseResponse(text)
	require.NoError(t, err)
	require.Equal(t, Response{Done: true}, resp)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(text) }))
	defer srv.Close()
	p, err := NewHTTPProcessor(srv.URL)
	require.NoError(t, err)
	resp, err = p.Process(t.Context(), Item{ID: "a", Partition: "p"})
	require.NoError(t, err)
	require.Equal(t, Response{Done: true}, resp)
}
