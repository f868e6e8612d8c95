package client

import (
	"errors"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestErrors(t *testing.T) {
	for status, want := range map[int]error{
		401: ErrUnauthorized, 403: ErrUnauthorized, 404: ErrNotFound, 409: ErrConflict, 500: ErrUnavailable,
		503: ErrUnavailable,
	} {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			_, _ = w.Write([]byte(`{"error":{"code":"c","message":"m"}}`))
		}))
		_, err := New(srv.URL, "t", nil).Send(t.Context(), Message{})
		require.ErrorIs(t, err, want)
		require.Equal(t, status == 401 || status == 403, errors.Is(err, fs.ErrPermission))
		e, ok := errors.AsType[*Error](err)
		require.True(t, ok)
		require.Equal(t, "m", e.Message)
		srv.Close()
	}
	_, err := New("http://127.0.0.1:1", "", nil).Send(t.Context(), Message{})
	require.ErrorIs(t, err, ErrUnavailable)
}

// Every request of the interface can be made, and every kind of answer read.
func TestCall(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/echo":
			w.Header().Set("Echoed", r.Header.Get("Content-Type"))
			_, _ = io.Copy(w, r.Body)
		case "/page":
			w.WriteHeader(http.StatusBadGateway)
			_, _ = io.WriteString(w, "<html>")
		default:
			w.WriteHeader(http.StatusNoContent)
		}
	}))
	defer server.Close()
	c := New(server.URL+"/", "", nil)
	var value map[string]int
	require.NoError(t, c.Call(t.Context(), http.MethodPost, "/echo", map[string]int{"a": 1}, &value))
	require.Equal(t, 1, value["a"])
	var raw []byte
	require.NoError(t, c.Call(t.Context(), http.MethodPost, "/echo", []byte("a\nb"), &raw))
	require.Equal(t, "a\nb", string(raw))
	require.NoError(t, c.Call(t.Context(), http.MethodDelete, "/x", nil, nil))
	require.ErrorContains(t, c.Call(t.Context(), http.MethodPost, "/echo", []byte("{"), &value), "read the answer to POST /echo")
	require.ErrorContains(t, c.Call(t.Context(), http.MethodPost, "/echo", func() {}, nil), "write the body")
	err := c.Call(t.Context(), http.MethodGet, "/page", nil, &value)
	require.ErrorIs(t, err, ErrUnavailable)
	require.ErrorContains(t, err, "answered 502")
	require.Error(t, c.Call(t.Context(), "BAD METHOD", "/", nil, nil))
}
