package feed

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/feed/internal/sqlstore"
	"github.com/jetpull/jetpull/internal/service/webhook"
)

func TestHTTPAnswers(t *testing.T) {
	var code int
	var body string
	header := http.Header{}
	var hits atomic.Int64
	stop := make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		hits.Add(1)
		for name, values := range header {
			w.Header()[name] = values
		}
		if body == "hang" {
			select {
			case <-stop:
			case <-r.Context().Done():
			}
			return
		}
		w.WriteHeader(code)
		_, _ = io.WriteString(w, body)
	}))
	defer srv.Close()
	defer close(stop)
	p, err := NewHTTPProcessor(srv.URL, Timeout(2*time.Second))
	require.NoError(t, err)
	for _, tt := range []struct {
		name, body string
		code       int
		header     http.Header
		want       string // a part of the error; "": none
		permanent  bool
		after      time.Duration // -1: none
	}{
		{"done", `{"done":true}`, 200, nil, "", false, -1},
		{"created", ` {"gate":3,"data":{"a":1},"more":1} `, 201, nil, "", false, -1},
		{"no JSON", `ok`, 200, nil, "not the JSON", false, -1},
		{"empty", ``, 204, nil, "not the JSON", false, -1},
		{"null", `null`, 200, nil, "no object", false, -1},
		{"list", `[]`, 200, nil, "not the JSON", false, -1},
		{"two", `{"done":true}{}`, 200, nil, "not the JSON", false, -1},
		{"wrong type", `{"done":"yes"}`, 200, nil, "not the JSON", false, -1},
		{"error with 200", `{"error":{"message":"no"}}`, 200, nil, "no", false, -1},
		{"bad request", `{"error":{"message":"bad luck"}}`, 400, nil, "status 400: bad luck", false, -1},
		{"no retry", `{"error":{"message":"bad luck","no_retry":true}}`, 500, http.Header{"Retry-After": {"1"}}, "bad luck", true, -1},
		{"retry after", `busy`, 503, http.Header{"Retry-After": {"7"}}, `status 503: "busy"`, false, 7 * time.Second},
		{"retry after in the body", `{"error":{"message":"busy","retry_after":1.5}}`, 503, nil, "status 503: busy", false, 1500 * time.Millisecond},
		{"retry after in the body of a 200", `{"error":{"message":"busy","retry_after":3}}`, 200, nil, "busy", false, 3 * time.Second},
		{"retry after now", `busy`, 503, http.Header{"Retry-After": {"0"}}, `status 503: "busy"`, false, -1},
		{"retry after a time that has passed", `busy`, 503, http.Header{"Retry-After": {"Wed, 21 Oct 2015 07:28:00 GMT"}}, `status 503: "busy"`, false, -1},
		{"retry after a negative time", `{"error":{"message":"busy","retry_after":-1.5}}`, 503, nil, "status 503: busy", false, -1},
		{
			"retry after in both", `{"error":{"message":"busy","retry_after":1.5}}`, 503,
			http.Header{"Retry-After": {"7"}},
			"status 503: busy", false,
			7 * time.Second,
		},
		{"redirect", ``, 302, http.Header{"Location": {srv.URL}}, "status 302", false, -1},
		{"at the limit", `{"done":true}` + strings.Repeat(" ", maxAnswer-13), 200, nil, "", false, -1},
		{"over the limit", `{"done":true}` + strings.Repeat(" ", maxAnswer-12), 200, nil, "too large", false, -1},
		{"busy over the limit", strings.Repeat("x", maxAnswer+1), 503, http.Header{"Retry-After": {"7"}}, "too large", false, 7 * time.Second},
		{"busy and broken off", "x", 503, http.Header{"Retry-After": {"7"}, "Content-Length": {"2"}}, "broke off", false, 7 * time.Second},
		{"slow", "hang", 200, nil, "no answer within", false, -1},
	} {
		code, body, header = tt.code, tt.body, tt.header
		before := hits.Load()
		_, err := p.Process(t.Context(), Item{ID: "a", Partition: "p"})
		require.EqualValues(t, before+1, hits.Load(), tt.name)
		if tt.want == "" {
			require.NoError(t, err, tt.name)
			continue
		}
		require.ErrorContains(t, err, tt.want, tt.name)
		h := handler{config: newConfig([]WatcherOption{Backoff(func(int) time.Duration { return time.Hour })})}
		r := h.Failed(&sqlstore.Item{}, err)
		require.Equal(t, tt.permanent, r.Status == sqlstore.Failed, tt.name)
		want := tt.after
		if want < 0 && !tt.permanent {
			want = time.Hour
		}
		require.Equal(t, max(want, 0), r.Delay, tt.name)
	}
	for u, shown := range map[string]string{
		"127.0.0.1:80": "127.0.0.1:80", "ftp://h/": "ftp://h/", "http://": "http://…", "://": "…",
		"http://u:secret@/": "http://…@…",
	} {
		_, err := NewHTTPProcessor(u)
		require.ErrorIs(t, err, ErrInvalid)
		require.ErrorContains(t, err, strconv.Quote(shown))
	}
	_, err = NewHTTPProcessor("")
	require.ErrorIs(t, err, ErrInvalid)
	require.ErrorContains(t, err, `url: URL "" is not absolute: give http://`)
	for _, o := range []HTTPOption{Timeout(0), Secret("short"), Health("x")} {
		_, err := NewHTTPProcessor(srv.URL, o)
		require.ErrorIs(t, err, ErrInvalid)
	}
	forbidden, err := NewHTTPProcessor("http://169.254.169.254/latest")
	require.NoError(t, err)
	_, err = forbidden.Process(t.Context(), Item{})
	require.ErrorIs(t, err, webhook.ErrForbiddenAddress)
}

// A handler gives data that is no JSON as bytes, over HTTP as by any other way.
func TestHTTPAnswerWithBytes(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"done":true,"bytes":"AP8="}`)
	}))
	defer srv.Close()
	p, err := NewHTTPProcessor(srv.URL)
	require.NoError(t, err)
	resp, err := p.Process(t.Context(), Item{ID: "a", Partition: "p"})
	require.NoError(t, err)
	require.Equal(t, Response{Done: true, Data: []byte{0, 0xff}}, resp)
}

// TestHTTPRequests: what a handler gets over the attempts of two steps, signed, after it became healthy.
func TestHTTPRequests(t *testing.T) {
	t.Parallel()
	s := openStore(t, backends[0].fresh(t))
	secret := webhook.NewSecret()
	verify, err := standardwebhooks.NewWebhook(secret)
	require.NoError(t, err)
	var mu sync.Mutex
	var got []http.Header
	var bodies []string
	probes := 0
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if probes++; probes == 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	mux.HandleFunc("POST /item", func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		if err := verify.Verify(body, r.Header); err != nil {
			t.Error(err)
		}
		if probes < 2 {
			t.Error("a request before the handler was healthy")
		}
		got, bodies = append(got, r.Header.Clone()), append(bodies, string(body))
		switch len(got) {
		case 1:
			w.WriteHeader(http.StatusTeapot)
		case 2:
			_, _ = io.WriteString(w, `{"data":"next"}`)
		default:
			_, _ = io.WriteString(w, `{"done":true}`)
		}
	})
	srv := httptest.NewServer(mux)
	defer srv.Close()
	p, err := NewHTTPProcessor(srv.URL+"/item", Secret(secret), Health(srv.URL+"/health"))
	require.NoError(t, err)
	create(t, s, Partition{ID: "p", Sealed: true}, Item{ID: "a", Data: []byte("first")})
	w := startWatcher(t, s, p, AutoClose())
	awaitPartition(t, s, "p", Complete)
	require.NoError(t, w.stop(t))
	require.Equal(t, []string{"first", "first", `"next"`}, bodies)
	for i, attempt := range []string{"1", "2", "1"} {
		require.Equal(t, attempt, got[i].Get("Feed-Attempt"))
		require.Equal(t, []string{"a", "p", "0"}, []string{got[i].Get("Feed-Item"), got[i].Get("Feed-Partition"), got[i].Get("Feed-Gate")})
	}
	require.Equal(t, got[0].Get("Idempotency-Key"), got[1].Get("Idempotency-Key"))
	require.NotEqual(t, got[1].Get("Idempotency-Key"), got[2].Get("Idempotency-Key"))
}

// TestHealthIsAskedOnce: of many calls that wait for a handler to be well, one asks.
func TestHealthIsAskedOnce(t *testing.T) {
	t.Parallel()
	const calls = 20
	var well atomic.Bool
	var together, most, processed atomic.Int64
	asked, refuse := make(chan struct{}, 1000), make(chan struct{})
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, r *http.Request) {
		if n := together.Add(1); n > most.Load() {
			most.Store(n)
		}
		defer together.Add(-1)
		asked <- struct{}{}
		if !well.Load() {
			select {
			case <-refuse:
			case <-r.Context().Done():
			}
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	mux.HandleFunc("POST /item", func(w http.ResponseWriter, _ *http.Request) {
		processed.Add(1)
		_, _ = io.WriteString(w, `{"done":true}`)
	})
	srv := httptest.NewServer(mux)
	defer srv.Close()
	p, err := NewHTTPProcessor(srv.URL+"/item", Health(srv.URL+"/health"))
	require.NoError(t, err)
	var wg sync.WaitGroup
	for range calls {
		wg.Go(func() {
			if _, err := p.Process(t.Context(), Item{ID: "a", Partition: "p"}); err != nil {
				t.Error(err)
			}
		})
	}
	<-asked
	refuse <- struct{}{}
	<-asked
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = p.Process(ended, Item{})
	require.ErrorIs(t, err, context.Canceled, "a call that waits ends with its context")
	well.Store(true)
	refuse <- struct{}{}
	wg.Wait()
	require.EqualValues(t, 1, most.Load())
	require.EqualValues(t, calls, processed.Load())
}
