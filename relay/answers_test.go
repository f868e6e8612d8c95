package relay

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/test/servertest"
)

// hostile is a peer that misbehaves by the path of a request.
type hostile struct {
	*httptest.Server
	release func() // ends the requests that hang
	written atomic.Int64
	mu      sync.Mutex
	paths   map[string]int
}

const gigabyte = 1 << 30

func newHostile(t *testing.T) *hostile {
	stop := make(chan struct{})
	h := &hostile{paths: map[string]int{}, release: sync.OnceFunc(func() { close(stop) })}
	h.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		h.mu.Lock()
		h.paths[r.URL.Path]++
		n := h.paths[r.URL.Path]
		h.mu.Unlock()
		if n > 1 && strings.HasPrefix(r.URL.Path, "/once/") {
			return
		}
		switch r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:] {
		case "hang":
			select {
			case <-stop:
			case <-r.Context().Done():
			}
		case "reset":
			panic(http.ErrAbortHandler)
		case "redirect":
			http.Redirect(w, r, "/target", http.StatusTemporaryRedirect)
		case "drip":
			h.drip(w, r)
		case "flood":
			h.flood(w)
		}
	}))
	t.Cleanup(func() {
		h.release()
		h.Close()
	})
	return h
}

// drip sends a byte of the body now and then, for ever.
func (h *hostile) drip(w http.ResponseWriter, r *http.Request) {
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for r.Context().Err() == nil {
		_, _ = io.WriteString(w, "x")
		_ = http.NewResponseController(w).Flush()
		select {
		case <-ticker.C:
		case <-r.Context().Done():
		}
	}
}

// flood sends a gigabyte, unless the client stops reading.
func (h *hostile) flood(w http.ResponseWriter) {
	block := []byte(strings.Repeat("y", 64<<10))
	for range gigabyte / len(block) {
		n, err := w.Write(block)
		h.written.Add(int64(n))
		if err != nil {
			return
		}
	}
}

func (h *hostile) count(path string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.paths[path]
}

// maxBuffered bounds the part of an unread answer that is in the buffers of the sockets on both sides.
const maxBuffered = 64 << 20

// A receiver may hang, reset, redirect, drip or flood: each message still ends, and no answer is read beyond its limit.
func TestHostileReceivers(t *testing.T) {
	t.Parallel()
	s := startSite(t, func(c *Config) { c.Relay.MaxResponse = 1000 })
	h := newHostile(t)
	ends := map[string]string{"hang": "UNKNOWN_OUTCOME", "reset": "UNKNOWN_OUTCOME", "redirect": "PERMANENT", "drip": "UNKNOWN_OUTCOME", "flood": ""}
	for name := range ends {
		s.receiver(name, h.URL+"/"+name, object{"max_retries": 0, "timeout": 2, "unknown_outcome": "at_most_once"})
		s.want(202, "POST", "/v1/messages", adminToken, message("a", name, name))
	}
	for name, reason := range ends {
		status := "FAILED"
		if reason == "" {
			status = "DONE"
		}
		o := s.awaitStatus("a", name, status)
		require.Equal(t, 1, h.count("/"+name))
		if reason != "" {
			require.Equal(t, reason, o["error"].(object)["code"], name)
			continue
		}
		require.Equal(t, true, o["truncated"], name)
		require.LessOrEqual(t, len(o["response"].(string)), 1000)
	}
	require.Zero(t, h.count("/target"), "a redirect is not followed")
	require.Less(t, h.written.Load(), int64(maxBuffered))
}

// As JSON a response may have six times its bytes, and the server of the store may accept less than that. The response is then
// cut, and its message is not sent again.
func TestResponseThatIsLargerAsJSON(t *testing.T) {
	t.Parallel()
	const size = 200 << 10
	bodies := map[string]string{"binary": strings.Repeat("\x00", size), "markup": `"` + strings.Repeat("<", size) + `"`}
	srv := servertest.RunServer(t)
	for where, change := range map[string]func(*Config){
		"external": func(c *Config) { c.NATS.URL = srv.URL() },
		"embedded": func(c *Config) { c.HTTP.MaxBodyBytes = 64 << 10 },
	} {
		t.Run(where, func(t *testing.T) {
			s := startSite(t, change)
			answer := func(_ int, got seen) (int, string) { return 200, bodies[got.Header.Get("Webhook-Id")[len("a/"):]] }
			r := newPeer(t, answer)
			pending := newPeer(t, func(int, seen) (int, string) { return 202, "" })
			asked := newPeer(t, answer)
			s.receiver("ci", r.URL, object{"max_retries": 3})
			s.receiver("asked", pending.URL, object{"max_retries": 3, "status_endpoint": asked.URL})
			for source, receiver := range map[string]string{"a": "ci", "b": "asked"} {
				for id, body := range bodies {
					s.want(202, "POST", "/v1/messages", adminToken, message(source, id, receiver))
					o := s.awaitStatus(source, id, "DONE")
					kept := o["response"].(string)
					if where == "embedded" {
						require.NotContains(t, o, "truncated", "any response fits into its max_payload")
						require.Contains(t, body, kept)
						require.GreaterOrEqual(t, len(kept), size)
						continue
					}
					require.Equal(t, true, o["truncated"])
					require.Greater(t, len(kept), size/4)
					require.True(t, strings.HasPrefix(body, kept))
				}
			}
			require.Equal(t, len(bodies), r.count())
			require.Equal(t, len(bodies), asked.count())
		})
	}
}

// JSON may be valid by itself and nested too deep for a record, an answer or a callback. There it becomes text.
func TestResponseThatIsNestedTooDeep(t *testing.T) {
	t.Parallel()
	const levels = 10_000 // the limit of encoding/json
	deep := strings.Repeat("[", levels) + strings.Repeat("]", levels)
	s := startSite(t)
	r, callback := newPeer(t, func(int, seen) (int, string) { return 200, deep }), newPeer(t, nil)
	s.receiver("ci", r.URL, nil)
	s.sender("git", callback.URL, "git/")
	for range 2 {
		require.Equal(t, deep, s.want(200, "POST", "/v1/messages?wait=20s", adminToken, message("git/a", "1", "ci"))["response"])
	}
	require.Equal(t, deep, s.awaitStatus("git%2Fa", "1", "DONE")["response"])
	require.Contains(t, callback.list()[0].Body, deep)
	require.Equal(t, 1, r.count())
}

// A sender's callback may misbehave in the same ways. It is called until it answers with 2xx, and other senders are not blocked.
func TestHostileCallbacks(t *testing.T) {
	t.Parallel()
	s := startSite(t, func(c *Config) { c.Relay.CallbackTimeout = 2 * time.Second })
	h := newHostile(t)
	r, callback := newPeer(t, nil), newPeer(t, nil)
	s.receiver("ci", r.URL, nil)
	s.sender("good", callback.URL, "good/")
	kinds := []string{"hang", "reset", "redirect", "drip", "flood"}
	for _, kind := range kinds {
		s.sender(kind, h.URL+"/once/"+kind, kind+"/")
		s.want(202, "POST", "/v1/messages", adminToken, message(kind+"/a", "1", "ci"))
	}
	s.batch("good/a", "ci", 20)
	eventually(t, func() bool { return callback.count() == 20 }, "a good sender gets no callbacks")
	for _, kind := range kinds {
		s.awaitStatus(kind+"%2Fa", "1", "DONE")
	}
	for kind, calls := range map[string]int{"hang": 2, "reset": 2, "redirect": 2, "drip": 1, "flood": 1} {
		require.Equal(t, calls, h.count("/once/"+kind), "calls of %s: 200 and a body that does not end is a 200", kind)
	}
	require.Zero(t, h.count("/target"), "a redirect is not followed")
	require.Less(t, h.written.Load(), int64(maxBuffered))
	require.Equal(t, 20+len(kinds), r.count(), "nobody is POSTed to twice because of a callback")
}

// A receiver that never answers keeps only its own workers busy.
func TestBlackHoleHoldsUpNobodyElse(t *testing.T) {
	t.Parallel()
	const concurrency, others = 4, 200
	s := startSite(t, func(c *Config) { c.Relay.Concurrency = concurrency })
	h := newHostile(t)
	defer h.release()
	r := newPeer(t, nil)
	s.receiver("hole", h.URL+"/hang", object{"timeout": 600, "status_endpoint": h.URL + "/hang"})
	s.receiver("ci", r.URL, nil)
	// Both receivers get messages of the same sources.
	s.batch("a", "hole", 50)
	eventually(t, func() bool { return h.count("/hang") == concurrency }, "the black hole is not full")
	for i := range others {
		s.want(202, "POST", "/v1/messages", adminToken, message("a", fmt.Sprint("b", i), "ci"))
	}
	eventually(t, func() bool { return r.count() == others }, "others are held up")
	require.Equal(t, concurrency, h.count("/hang"), "all of it while the first ones hang")
}

// After 429 or 503 with Retry-After nothing is sent to the receiver for that time, which is longer than the receiver's own pause.
func TestRetryAfter(t *testing.T) {
	t.Parallel()
	for _, code := range []int{http.StatusTooManyRequests, http.StatusServiceUnavailable} {
		s := startSite(t)
		var mu sync.Mutex
		var times []time.Time
		r := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			mu.Lock()
			defer mu.Unlock()
			times = append(times, time.Now())
			if len(times) == 1 {
				w.Header().Set("Retry-After", "1")
				w.WriteHeader(code)
			}
		}))
		t.Cleanup(r.Close)
		s.receiver("ci", r.URL, object{"retry_after": 0, "order": "receiver"})
		s.batch("a", "ci", 3)
		for i := range 3 {
			s.awaitStatus("a", fmt.Sprint(i), "DONE")
		}
		require.Len(t, times, 4)
		require.GreaterOrEqual(t, times[1].Sub(times[0]), time.Second)
		require.Len(t, s.status("a", "0")["attempts"], 2)
	}
}

// With a very short Retry-After, a status endpoint or a sender is still not called without a pause.
func TestRetryAfterOfNextToNothing(t *testing.T) {
	t.Parallel()
	s := startSite(t)
	peers := map[string]*slowly{"/status": {code: 202}, "/told": {code: 503}}
	mux := http.NewServeMux()
	for path, p := range peers {
		mux.Handle(path, p)
	}
	mux.HandleFunc("/post", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusAccepted) })
	srv := httptest.NewServer(mux)
	t.Cleanup(srv.Close)
	s.receiver("ci", srv.URL+"/post", object{"status_endpoint": srv.URL + "/status"})
	s.sender("git", srv.URL+"/told", "git/")
	s.want(202, "POST", "/v1/messages", adminToken, message("git/a", "1", "ci"))
	s.awaitStatus("git%2Fa", "1", "DONE")
	for path, p := range peers {
		require.Len(t, p.times, 3)
		require.GreaterOrEqual(t, p.times[1].Sub(p.times[0]), 250*time.Millisecond, path)
		require.GreaterOrEqual(t, p.times[2].Sub(p.times[1]), 500*time.Millisecond, path)
	}
}

// slowly answers twice with a code after which the relay repeats the request, and then with 200.
type slowly struct {
	code  int
	times []time.Time
}

func (p *slowly) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	p.times = append(p.times, time.Now())
	if len(p.times) < 3 {
		w.Header().Set("Retry-After", "0.0001")
		w.WriteHeader(p.code)
	}
}

// A PUT ends a hold that the receiver asked for, whichever process handles the PUT.
func TestPUTEndsAHoldInEveryProcess(t *testing.T) {
	t.Parallel()
	srv := servertest.RunServer(t)
	var sites []*site
	for range 2 {
		sites = append(sites, startSite(t, func(c *Config) { c.NATS.URL = srv.URL() }))
	}
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.Header.Get("Webhook-Id"), "/1") {
			w.Header().Set("Retry-After", "3600")
			w.WriteHeader(http.StatusTooManyRequests)
		}
	}))
	t.Cleanup(receiver.Close)
	for i, s := range sites {
		name := fmt.Sprint("ci", i)
		s.receiver(name, receiver.URL, nil)
		s.want(202, "POST", "/v1/messages", adminToken, message(name, "1", name))
		eventually(t, func() bool { return len(s.status(name, "1")["attempts"].([]any)) == 1 }, "the first is not refused")
		s.want(202, "POST", "/v1/messages", adminToken, message(name, "2", name))
	}
	for i, s := range sites {
		name := fmt.Sprint("ci", i)
		eventually(t, func() bool {
			return s.want(200, "GET", "/v1/receivers/"+name, adminToken, nil)["state"].(object)["backlog"] == float64(2)
		}, "not both wait")
		require.Equal(t, "ARRIVED", s.status(name, "2")["status"], "it is held back")
		s.receiver(name, receiver.URL, object{"max_retries": 6})
		s.awaitStatus(name, "2", "DONE")
		require.Equal(t, "ARRIVED", s.status(name, "1")["status"], "its own next attempt is due later")
	}
}

// A relay is ready if it can write. It is not ready if its store answers reads and refuses writes.
func TestReadyFollowsTheLastWrite(t *testing.T) {
	t.Parallel()
	srv := servertest.RunServer(t)
	js := testJetStream(t, srv.Connect(t))
	s := startSite(t, func(c *Config) { c.NATS.URL = srv.URL() })
	ready := func(status int) func() bool {
		return func() bool { code, _ := s.call("GET", "/readyz", "", nil); return code == status }
	}
	require.True(t, ready(200)())
	stream, err := js.Stream(t.Context(), "KV_relay_state")
	require.NoError(t, err)
	require.NoError(t, js.DeleteStream(t.Context(), "KV_relay_state"))
	eventually(t, ready(503), "it is ready though nothing is stored")
	code, _ := s.call("GET", "/healthz", "", nil)
	require.Equal(t, 200, code)
	_, err = js.CreateStream(t.Context(), stream.CachedInfo().Config)
	require.NoError(t, err)
	eventually(t, ready(200), "it is not ready again")
}
