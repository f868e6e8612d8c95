package client

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"github.com/stretchr/testify/require"
)

const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

func signed(t *testing.T, id, body string) *http.Request {
	t.Helper()
	wh, err := standardwebhooks.NewWebhook(secret)
	require.NoError(t, err)
	now := time.Now()
	signature, err := wh.Sign(id, now, []byte(body))
	require.NoError(t, err)
	r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body))
	r.Header.Set("Webhook-Id", id)
	r.Header.Set("Webhook-Timestamp", strconv.FormatInt(now.Unix(), 10))
	r.Header.Set("Webhook-Signature", "v1,AAAA "+signature)
	return r
}

func TestCallback(t *testing.T) {
	verifier, err := NewVerifier(secret)
	require.NoError(t, err)
	calls := 0
	h := &Callback{Verifier: verifier, Handle: func(context.Context, Result) error {
		if calls++; calls == 1 {
			return errors.New("not now")
		}
		return nil
	}}
	serve := func(r *http.Request) int {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Code
	}
	const body = `{"source_id":"a","message_id":"1","status":"DONE","response":null}`
	require.Equal(t, 500, serve(signed(t, "a/1", body)))
	require.Equal(t, 204, serve(signed(t, "a/1", body)))
	require.Equal(t, 2, calls)

	forged := signed(t, "a/2", body)
	forged.Header.Set("Webhook-Id", "a/3")
	require.Equal(t, 401, serve(forged))
	old := signed(t, "a/2", body)
	old.Header.Set("Webhook-Timestamp", "1000000000")
	require.Equal(t, 401, serve(old))
	require.Equal(t, 400, serve(signed(t, "a/2", "{}")))
	require.Equal(t, 405, serve(httptest.NewRequest(http.MethodPut, "/", nil)))
}

// The signature of a status request is valid for one message only.
func TestStatusIsOfTheMessageThatIsSigned(t *testing.T) {
	verifier, err := NewVerifier(secret)
	require.NoError(t, err)
	result := func(_ context.Context, source, id string) (any, bool, error) { return source + "/" + id, true, nil }
	h := &Receiver{Verifier: verifier, Result: result}
	serve := func(webhookID, query string) int {
		r := signed(t, webhookID, "")
		r.Method, r.URL.RawQuery = http.MethodGet, query
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Code
	}
	require.Equal(t, 200, serve("a%2Fb/1", "source=a%2Fb&message=1"))
	require.Equal(t, 401, serve("a%2Fb/1", "source=a%2Fb&message=2"))
	require.Equal(t, 401, serve("a%2Fb/1", "source=c&message=1"))
	require.Equal(t, 401, serve("none", "source=none&message="))
	h.Verifier = nil
	require.Equal(t, 200, serve("a%2Fb/1", "source=c&message=2"))
}

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
	for _, bad := range []string{"", "whsec_", "whsec_!"} {
		_, err := NewVerifier(bad)
		require.Error(t, err)
	}
}

func FuzzSplitID(f *testing.F) {
	for _, id := range []string{"a/b", "%2F/%20", "/", "a", "%zz/1", "a/b/1"} {
		f.Add(id)
	}
	f.Fuzz(func(t *testing.T, webhookID string) {
		source, id, err := splitID(webhookID)
		if err != nil {
			return
		}
		again, id2, err := splitID(PathEscape(source) + "/" + PathEscape(id))
		require.NoError(t, err)
		require.Equal(t, source, again)
		require.Equal(t, id, id2)
	})
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

// A handler answers any request, and accepts only those that it can decode.
func FuzzHandlers(f *testing.F) {
	f.Add("POST", "a/1", "1", []byte(`{"source_id":"a","message_id":"1","status":"DONE","response":null}`), "source=a&message=1")
	f.Add("GET", "%2E/%zz", "x", []byte("{"), "source=%zz")
	f.Add("POST", "", "", []byte(nil), "")
	f.Fuzz(func(t *testing.T, method, id, attempt string, body []byte, query string) {
		receiver := &Receiver{
			Accept: func(_ context.Context, d Delivery) error {
				require.Equal(t, body, d.Payload)
				return nil
			},
			Result: func(context.Context, string, string) (any, bool, error) { return nil, true, nil },
		}
		callback := &Callback{Handle: func(_ context.Context, r Result) error {
			require.NotEmpty(t, r.Source)
			require.NotEmpty(t, r.ID)
			return nil
		}}
		verifier, err := NewVerifier(secret)
		require.NoError(t, err)
		for _, h := range []http.Handler{receiver, callback, &Callback{Verifier: verifier, Handle: func(context.Context, Result) error {
			t.Error("a request that is not signed was handled")
			return nil
		}}} {
			r, err := http.NewRequest(method, "http://h/?"+query, strings.NewReader(string(body)))
			if err != nil {
				return
			}
			r.Header.Set("Webhook-Id", id)
			r.Header.Set("Relay-Attempt", attempt)
			r.Header.Set("Webhook-Timestamp", strconv.FormatInt(time.Now().Unix(), 10))
			r.Header.Set("Webhook-Signature", "v1,"+id)
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			require.Contains(t, []int{202, 204, 400, 401, 405}, w.Code)
		}
	})
}
