package httpserve

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestDispatch(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /a/{id}", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })
	mux.HandleFunc("GET /empty", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /panic", func(http.ResponseWriter, *http.Request) { panic("a defect") })
	mux.HandleFunc("GET /late", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "begun")
		panic("a late defect")
	})
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, nil))
	for _, tt := range []struct {
		method, path, pattern string
		status                int
		failed                error
	}{
		{"GET", "/a/%2E", "/a/{id}", 418, nil},
		{"GET", "/empty", "/empty", 200, nil},
		{"GET", "/b", noRoute, 500, ErrNoRoute},
		{"GET", "/a//b", noRoute, 500, ErrNoRoute},
		{"GET", "/a/../empty", noRoute, 500, ErrNoRoute},
		{"GET", "/a/b/", noRoute, 500, ErrNoRoute},
		{"GET", "/", noRoute, 500, ErrNoRoute},
		{"GET", "/panic", "/panic", 500, ErrPanicked},
		{"GET", "/late", "/late", 200, nil},
	} {
		w := &recorder{ResponseWriter: httptest.NewRecorder()}
		var failed error
		pattern := dispatch(mux, w, httptest.NewRequest(tt.method, tt.path, nil), logger, func(err error) {
			failed = err
			w.WriteHeader(http.StatusInternalServerError)
		})
		require.Equal(t, tt.status, w.Status(), tt.path)
		require.ErrorIs(t, failed, tt.failed, tt.path)
		if !strings.Contains(tt.path, "panic") && tt.path != "/late" {
			require.Equal(t, tt.pattern, pattern)
		}
	}
	require.Contains(t, log.String(), "a defect")
	require.Contains(t, log.String(), "a late defect")
	require.Contains(t, log.String(), "httpserve_test.go", "the stack")

	var refused *Error
	dispatch(mux, &recorder{ResponseWriter: httptest.NewRecorder()}, httptest.NewRequest(http.MethodPost, "/empty", nil), logger, func(err error) {
		require.ErrorAs(t, err, &refused)
	})
	require.Equal(t, "GET, HEAD", refused.Header["Allow"])
}

func TestExchange(t *testing.T) {
	data, err := Encode(map[string]string{"a": "<b>"})
	require.NoError(t, err)
	require.Equal(t, "{\"a\":\"<b>\"}\n", string(data))
	data, err = Encode(map[string]any{"\u009b": json.RawMessage(`"\\\\` + "\x7f\u0085é\u00a0" + `"`)})
	require.NoError(t, err)
	require.Equal(t, `{"\u009b":"\\\\\u007f\u0085é`+"\u00a0"+`"}`+"\n", string(data), "a terminal obeys DEL and C1 controls")
	_, err = Encode(func() {})
	require.Error(t, err)

	for header, want := range map[string]string{"Bearer x": "x", "bearer  x ": "x", "Basic x": "", "Bearer": "", "": "", "x": ""} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set("Authorization", header)
		require.Equal(t, want, Bearer(r), header)
	}
	for id, want := range map[string]string{"a/b": "a%2Fb", ".": "%2E", "..": "%2E%2E", "...": "...", "ü ?": "%C3%BC%20%3F"} {
		require.Equal(t, want, EscapeID(id))
	}
	require.Equal(t, "GET", methodLabel("GET"))
	require.Equal(t, "PATCH", methodLabel("PATCH"))
	require.Equal(t, "other", methodLabel("BREW"))
}

// A stop answers what is in progress, and cuts what takes longer than the drain.
func TestServerStops(t *testing.T) {
	entered, release := make(chan struct{}, 2), make(chan struct{})
	handler := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		entered <- struct{}{}
		<-release
	})
	start := func() (*Server, chan error) {
		s, err := Listen(t.Context(), Config{Address: "127.0.0.1:0", Handler: handler, Read: time.Second, Log: slog.New(slog.DiscardHandler)})
		require.NoError(t, err)
		answered := make(chan error, 1)
		go func() {
			resp, err := http.Get("http://" + s.Addr())
			if err == nil {
				err = resp.Body.Close()
			}
			answered <- err
		}()
		<-entered
		return s, answered
	}
	slow, cut := start()
	require.Equal(t, time.Second, slow.http.ReadTimeout)
	require.Equal(t, time.Second, slow.http.ReadHeaderTimeout, "headers may take no longer than a whole request")
	require.ErrorContains(t, slow.Stop(t.Context(), time.Millisecond), "requests were cut")
	require.Error(t, <-cut)
	require.ErrorIs(t, slow.Wait(t.Context()), http.ErrServerClosed)
	require.ErrorIs(t, slow.Wait(t.Context()), http.ErrServerClosed, "again")

	s, answered := start()
	_, err := Listen(t.Context(), Config{Address: s.Addr(), Handler: handler, Log: slog.New(slog.DiscardHandler)})
	require.ErrorContains(t, err, "free the address, or choose another with --listen")
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	require.NoError(t, s.Wait(ended))
	stopped := make(chan error, 1)
	go func() { stopped <- s.Stop(t.Context(), time.Minute) }()
	close(release)
	require.NoError(t, <-stopped)
	require.NoError(t, <-answered)
	require.False(t, errors.Is(s.Wait(t.Context()), context.Canceled))
}

// Whatever a client sends, nothing panics and the answer has one status.
func FuzzDispatch(f *testing.F) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /a/{id}", func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.PathValue("id")) })
	f.Add("GET", "/a/x", "Bearer x")
	f.Add("BREW", "//%2e%2e/\x7f", "bearer\t")
	f.Fuzz(func(t *testing.T, method, path, authorization string) {
		r, err := http.NewRequest(method, "http://h/"+path, nil)
		if err != nil {
			return
		}
		r.Header.Set("Authorization", authorization)
		_ = Bearer(r)
		w := &recorder{ResponseWriter: httptest.NewRecorder()}
		dispatch(mux, w, r, slog.New(slog.DiscardHandler), func(err error) {
			require.NotErrorIs(t, err, ErrPanicked)
			w.WriteHeader(http.StatusNotFound)
		})
		require.Contains(t, []int{200, 404}, w.Status())
	})
}

// The header Date has the time of the answer by the system's clock, also after a wait.
func TestDateIsBySystemsClock(t *testing.T) {
	for name, answer := range map[string]func(http.ResponseWriter){
		"header": func(w http.ResponseWriter) { w.WriteHeader(http.StatusAccepted) },
		"body":   func(w http.ResponseWriter) { _, _ = w.Write([]byte("x")) },
	} {
		t.Run(name, func(t *testing.T) {
			at := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
			rec := httptest.NewRecorder()
			w := &recorder{ResponseWriter: rec, now: func() time.Time { return at }}
			at = at.Add(time.Minute)
			answer(w)
			require.Equal(t, "Wed, 02 Jan 2030 03:05:05 GMT", rec.Header().Get("Date"))
		})
	}
}
