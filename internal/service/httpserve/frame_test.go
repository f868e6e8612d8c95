package httpserve

import (
	"bytes"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Every request goes through the same steps, and is answered, counted and logged once, whichever of them ends it.
func TestFrame(t *testing.T) {
	var log bytes.Buffer
	var counted []string
	errToken, errBroken := errors.New("no token"), errors.New("broken")
	ok := func(w http.ResponseWriter, _ *http.Request) error {
		WriteJSON(w, http.StatusOK, "ok")
		return nil
	}
	const admin = 1
	system := System{
		Log: slog.New(slog.NewTextHandler(&log, nil)), Unguarded: true, Loopback: true,
		Observe: func(pattern, method string, status int, _ time.Duration) {
			counted = append(counted, method+" "+pattern+" "+http.StatusText(status))
		},
		Verify: func(r *http.Request) error {
			if r.Header.Get("Unsigned") != "" {
				return errToken
			}
			return nil
		},
		Redirect: func(r *http.Request) (string, bool) { return "/thing", r.URL.Path == "/old" },
		Check: func(_ http.ResponseWriter, r *http.Request, route Route) error {
			if route.Access == admin && Bearer(r) == "" {
				return errToken
			}
			return nil
		},
		Text: true,
		Describe: func(err error) *Error {
			return Describe(err, []Known{
				{errToken, http.StatusUnauthorized, "unauthorized", ""},
				{errBroken, http.StatusServiceUnavailable, "unavailable", ""},
			})
		},
		Quiet: func(r *http.Request, _ int) bool { return r.URL.Path == "/readyz" },
	}
	metrics := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	broken := func(http.ResponseWriter, *http.Request) error { return errBroken }
	routes := append(Common(admin, metrics, []byte("{}"), broken),
		On("GET", "/thing", Open, ok), On("GET", "/secret", admin, ok), On("GET", "/named/{name}", Open, ok), On("GET", "/broken", Open, broken))
	frame := NewFrame(system, routes)
	for _, tt := range []struct {
		request, header string
		status          int
		counted         string
		answer          http.Header
	}{
		{"GET /thing", "", 200, "GET /thing OK", http.Header{"X-Content-Type-Options": {"nosniff"}}},
		{"GET /thing", "Unsigned: 1", 401, "GET gateway Unauthorized", http.Header{"Www-Authenticate": {"Bearer"}}},
		{"GET /thing", "Host: evil.example", 403, "GET browser Forbidden", nil},
		{"GET /old", "", 301, "GET redirect Moved Permanently", http.Header{"Location": {"/thing"}}},
		{"POST /old", "", 308, "POST redirect Permanent Redirect", http.Header{"Location": {"/thing"}}},
		{"GET /none", "", 404, "GET none Not Found", nil},
		{"PUT /thing", "", 405, "PUT none Method Not Allowed", http.Header{"Allow": {"GET, HEAD"}}},
		{"GET /named/%FF", "", 400, "GET /named/{name} Bad Request", nil},
		{"GET /secret", "", 401, "GET /secret Unauthorized", http.Header{"Www-Authenticate": {"Bearer"}}},
		{"GET /secret", "Authorization: Bearer t", 200, "GET /secret OK", nil},
		{"GET /healthz", "", 200, "GET /healthz OK", nil},
		{"GET /readyz", "", 503, "GET /readyz Service Unavailable", http.Header{"Retry-After": {"1"}}},
		{"GET /metrics", "", 401, "GET /metrics Unauthorized", nil},
		{"GET /openapi.json", "", 200, "GET /openapi.json OK", http.Header{"Content-Type": {"application/json"}}},
	} {
		counted = nil
		method, path, _ := strings.Cut(tt.request, " ")
		r := httptest.NewRequest(method, "http://localhost"+path, nil)
		if name, value, ok := strings.Cut(tt.header, ": "); name == "Host" {
			r.Host = value
		} else if ok {
			r.Header.Set(name, value)
		}
		w := httptest.NewRecorder()
		frame.ServeHTTP(w, r)
		require.Equal(t, tt.status, w.Code, tt.request)
		require.Equal(t, []string{tt.counted}, counted, tt.request)
		for name, values := range tt.answer {
			require.Equal(t, values, w.Header()[name], tt.request)
		}
	}
	require.Empty(t, log.String(), "a status of 500 or more is logged once, where it was noticed")

	w := httptest.NewRecorder()
	w.Header().Set("X-Request-ID", "r1")
	frame.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "http://localhost/broken", nil))
	require.Contains(t, log.String(), `level=WARN msg="request failed" requestId=r1 method=GET path=/broken error=broken`)

	system.OpenMetrics, system.Loopback, system.Private = true, true, "set a token"
	w = httptest.NewRecorder()
	scrape := httptest.NewRequest(http.MethodGet, "http://localhost/metrics", nil)
	scrape.Header.Set("X-Forwarded-For", "192.0.2.1")
	NewFrame(system, routes).ServeHTTP(w, scrape)
	require.Contains(t, log.String(), `a listener on loopback is not private then" advice="set a token"`)
	require.Equal(t, http.StatusNoContent, w.Code)
}
