package httpserve

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMount(t *testing.T) {
	echo := func(name string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, name+" "+r.URL.Path) })
	}
	ctx, stop := context.WithCancel(t.Context())
	h := Mount(ctx, "/console/", echo("console"), echo("rest"))
	for path, want := range map[string]string{
		"/": "rest /", "/consoles": "rest /consoles", "/console/": "console /", "/console/a/b": "console /a/b",
		"/v1/console/": "rest /v1/console/",
	} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		require.Equal(t, want, w.Body.String())
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/console", nil))
	require.Equal(t, http.StatusSeeOther, w.Code)
	require.Equal(t, "console/", w.Header().Get("Location"))

	// A stream ends when the system stops.
	begun := make(chan struct{})
	stream := Mount(ctx, "/console/", http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(begun)
		<-r.Context().Done()
	}), echo("rest"))
	ended := make(chan struct{})
	go func() {
		stream.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/console/", nil))
		close(ended)
	}()
	<-begun
	stop()
	<-ended
}

func TestInProcess(t *testing.T) {
	client := &http.Client{Transport: InProcess{http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || !LocalName(r.Host) {
			http.Error(w, "bad request", http.StatusBadRequest)
			return
		}
		w.Header().Set("X-Path", r.URL.EscapedPath())
		w.WriteHeader(http.StatusTeapot)
		_, _ = w.Write(body)
	})}}
	answer, err := client.Post("http://localhost/a%2Fb?q=1", "text/plain", strings.NewReader("hello"))
	require.NoError(t, err)
	body, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	require.Equal(t, http.StatusTeapot, answer.StatusCode)
	require.Equal(t, "/a%2Fb", answer.Header.Get("X-Path"))
	require.Equal(t, "hello", string(body))
	answer, err = client.Get("http://localhost/")
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	require.Equal(t, http.StatusTeapot, answer.StatusCode)
}
