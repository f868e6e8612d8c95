package webhook

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestExchange(t *testing.T) {
	stop := make(chan struct{})
	mux := http.NewServeMux()
	mux.HandleFunc("/echo", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Method", r.Method)
		w.WriteHeader(http.StatusTeapot)
		_, _ = io.Copy(w, r.Body)
	})
	mux.HandleFunc("/redirect", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/echo", http.StatusFound) })
	mux.HandleFunc("/hang", func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-stop:
		case <-r.Context().Done():
		}
	})
	mux.HandleFunc("/reset", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	mux.HandleFunc("/flood", func(w http.ResponseWriter, _ *http.Request) {
		block := make([]byte, 32<<10)
		for {
			if _, err := w.Write(block); err != nil {
				return
			}
		}
	})
	mux.HandleFunc("/cut", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100")
		_, _ = io.WriteString(w, "half")
	})
	srv := httptest.NewServer(mux)
	defer srv.Close()
	defer close(stop)
	c := NewClient(Policy{Any: true}, 5*time.Second)
	defer c.Close()
	do := func(path, body string) (*Answer, error) {
		return c.Exchange(t.Context(), Request{Method: http.MethodPost, URL: srv.URL + path, Body: []byte(body), Timeout: 300 * time.Millisecond, Limit: 8})
	}

	a, err := do("/echo", "12345678")
	require.NoError(t, err)
	require.Equal(t, http.StatusTeapot, a.Code)
	require.Equal(t, "POST", a.Header.Get("X-Method"))
	require.Equal(t, "12345678", string(a.Body))
	require.False(t, a.Truncated)
	a, err = do("/echo", "123456789")
	require.NoError(t, err)
	require.Equal(t, "12345678", string(a.Body))
	require.True(t, a.Truncated)
	a, err = do("/redirect", "")
	require.NoError(t, err)
	require.Equal(t, http.StatusFound, a.Code)
	a, err = do("/flood", "")
	require.NoError(t, err)
	require.True(t, a.Truncated)
	require.Len(t, a.Body, 8)
	a, err = do("/cut", "")
	require.NoError(t, err)
	require.False(t, a.Truncated)
	require.ErrorIs(t, a.Broken, io.ErrUnexpectedEOF)
	require.Equal(t, "half", string(a.Body))

	_, err = do("/hang", "x")
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NotErrorIs(t, err, ErrNotSent)
	_, err = do("/reset", "x")
	require.Error(t, err)
	require.NotErrorIs(t, err, ErrNotSent)
	_, err = c.Exchange(t.Context(), Request{Method: http.MethodPost, URL: "http://127.0.0.1:1/"})
	require.ErrorIs(t, err, ErrNotSent)
	_, err = c.Exchange(t.Context(), Request{Method: http.MethodPost, URL: "::"})
	require.ErrorIs(t, err, ErrNotSent)
	public := NewClient(Policy{}, 5*time.Second)
	_, err = public.Exchange(t.Context(), Request{Method: http.MethodPost, URL: srv.URL + "/echo"})
	require.ErrorIs(t, err, ErrNotSent)
	require.ErrorIs(t, err, ErrForbiddenAddress)
}

// A request whose connection breaks may have been seen: it is not repeated, whatever its headers say.
func TestExchangeNeverRepeats(t *testing.T) {
	for _, name := range []string{"Idempotency-Key", "X-Idempotency-Key"} {
		for _, body := range []string{"", "x"} {
			var calls atomic.Int32
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				if r.Header.Get(name) != "key" {
					w.WriteHeader(http.StatusBadRequest)
				}
				if calls.Add(1) == 2 {
					panic(http.ErrAbortHandler) // on the connection that the first has left open
				}
			}))
			c := NewClient(Policy{Any: true}, 5*time.Second)
			do := func() (*Answer, error) {
				return c.Exchange(t.Context(), Request{Method: http.MethodPost, URL: srv.URL, Body: []byte(body), Header: http.Header{name: {"key"}}})
			}
			a, err := do()
			require.NoError(t, err)
			require.Equal(t, http.StatusOK, a.Code, "the header arrives")
			_, err = do()
			require.Error(t, err)
			require.NotErrorIs(t, err, ErrNotSent)
			require.EqualValues(t, 2, calls.Load(), "%s with %q", name, body)
			post := func() error { return postTo(t, c, srv.URL, http.Header{name: {"key"}}, []byte(body)) }
			calls.Store(0)
			require.NoError(t, post())
			require.Error(t, post())
			require.EqualValues(t, 2, calls.Load(), "%s with %q", name, body)
			c.Close()
			srv.Close()
		}
	}
}

// An answer of 101 leaves its connection open, and nothing comes on it: the answer has no body.
func TestExchangeDoesNotSwitchProtocols(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
		_, _ = io.Copy(io.Discard, conn) // until the client closes it
	}))
	defer srv.Close()
	c := NewClient(Policy{Any: true}, time.Second)
	defer c.Close()
	answers := make(chan *Answer, 1)
	go func() {
		a, _ := c.Exchange(context.Background(), Request{Method: http.MethodPost, URL: srv.URL, Limit: 8})
		answers <- a
	}()
	select {
	case a := <-answers:
		require.Equal(t, http.StatusSwitchingProtocols, a.Code)
		require.Empty(t, a.Body)
		require.NoError(t, a.Broken)
	case <-time.After(10 * time.Second):
		t.Fatal("the exchange does not end")
	}
}
