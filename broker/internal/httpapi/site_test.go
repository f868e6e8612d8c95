package httpapi_test

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/broker"
	"github.com/jetpull/jetpull/broker/internal/domain"
	"github.com/jetpull/jetpull/internal/service/openapi"
)

// site is a broker under test. Every answer is checked against the document.
type site struct {
	t    testing.TB
	urls []string // of its nodes
	turn atomic.Int64
	doc  *openapi.Document
}

type header = map[string]string

var (
	formType  = header{"Content-Type": "application/x-www-form-urlencoded"}
	jobTokens = header{"X-Broker-Channel-Token": "ct", "X-Broker-Consumer-Token": "kt"}
	producer  = header{"X-Broker-Channel-Token": "ct", "X-Broker-Producer-ID": "pr", "X-Broker-Producer-Token": "pt", "Content-Type": "text/plain"}
)

func with(h header, more header) header {
	all := header{}
	for k, v := range h {
		all[k] = v
	}
	for k, v := range more {
		all[k] = v
	}
	return all
}

// onCluster, if set, starts the site as several processes on a cluster instead of one node with an embedded server, and returns
// their addresses.
var onCluster func(testing.TB, *broker.Config) []string

func newSite(t testing.TB, change func(*broker.Config)) *site {
	t.Helper()
	cfg := broker.DefaultConfig()
	cfg.HTTP.Listener = "127.0.0.1:0"
	cfg.NATS.StoreDir = t.TempDir()
	cfg.Seed = broker.SeedData{
		Channels:  []broker.SeedItem{{ID: "ch", Name: "The channel", Token: "ct"}},
		Producers: []broker.SeedItem{{ID: "pr", Name: "The producer", Token: "pt"}},
		Consumers: []broker.SeedConsumer{
			{SeedItem: broker.SeedItem{ID: "pull", Name: "Puller", Token: "kt"}, Channel: "ch", CallbackURL: "http://127.0.0.1:9/", Type: domain.Pull},
			{SeedItem: broker.SeedItem{ID: "push", Name: "Pushee", Token: "kt"}, Channel: "ch", CallbackURL: "http://127.0.0.1:9/", Type: domain.Push},
		},
	}
	if change != nil {
		change(cfg)
	}
	source, err := os.ReadFile("openapi.json")
	require.NoError(t, err)
	doc, err := openapi.Parse(source)
	require.NoError(t, err)
	s := &site{t: t, doc: doc}
	if onCluster != nil {
		s.urls = onCluster(t, cfg)
		return s
	}
	n, err := broker.Start(t.Context(), cfg, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		require.NoError(t, n.Stop(ctx))
	})
	s.urls = []string{n.URL()}
	return s
}

// base returns the address for the next request: nodes alternate.
func (s *site) base() string { return s.urls[int(s.turn.Add(1))%len(s.urls)] }

type answer struct {
	status int
	header http.Header
	body   string
}

func (s *site) do(method, path string, h header, body string) answer {
	s.t.Helper()
	if catchesUp(method, path) {
		s.agree(channelOf(path))
	}
	req, err := http.NewRequestWithContext(s.t.Context(), method, s.base()+path, strings.NewReader(body))
	require.NoError(s.t, err)
	for k, v := range h {
		req.Header.Set(k, v)
	}
	req.Host = h["Host"]
	resp, err := http.DefaultTransport.RoundTrip(req) // redirects are answers too
	require.NoError(s.t, err)
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	require.NoError(s.t, err)
	require.NotEmpty(s.t, resp.Header.Get("X-Request-ID"))
	require.NoError(s.t, s.doc.Check(method, req.URL.EscapedPath(), resp.StatusCode, resp.Header, b))
	if resp.StatusCode >= 400 {
		require.NotEqual(s.t, "\n", string(b[max(0, len(b)-1):]), "an error ends with a newline")
	}
	return answer{resp.StatusCode, resp.Header, string(b)}
}

// expect makes a request and checks the answer's status, and the text of an error.
func (s *site) expect(status int, text, method, path string, h header, body string) answer {
	s.t.Helper()
	a := s.do(method, path, h, body)
	require.Equal(s.t, status, a.status, "%s %s: %s", method, path, a.body)
	if status >= 400 && text != "" {
		require.Equal(s.t, text, a.body)
	}
	return a
}

func (s *site) json(a answer, into any) {
	s.t.Helper()
	require.NoError(s.t, json.Unmarshal([]byte(a.body), into), a.body)
}

func (s *site) put(path string, form url.Values) answer {
	s.t.Helper()
	return s.expect(200, "", "PUT", path, formType, form.Encode())
}

func (s *site) broadcast(id, body string, more header) answer {
	s.t.Helper()
	return s.expect(201, "", "POST", "/channel/ch/broadcast", with(producer, with(header{"X-Broker-Message-ID": id}, more)), body)
}

type workItem struct {
	ID             string
	Priority       int
	ClaimToken     string
	ClaimExpiresAt time.Time
	Message        struct{ MessageID, Payload, PayloadEncoding, ContentType string }
}

func (s *site) work(method, query string) []workItem {
	s.t.Helper()
	return s.workOf("pull", method, query)
}

func (s *site) workOf(consumer, method, query string) []workItem {
	s.t.Helper()
	var list struct{ Result []workItem }
	s.json(s.expect(200, "", method, "/channel/ch/consumer/"+consumer+"/"+query, jobTokens, ""), &list)
	return list.Result
}

const job = "/channel/ch/consumer/pull/job/"
