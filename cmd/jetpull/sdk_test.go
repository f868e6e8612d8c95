package main

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/cmd/jetpull/internal/brokercmd"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/relaycmd"
	"github.com/jetpull/jetpull/internal/service/webhook"
)

// The clients in sdk are made for the OpenAPI documents as they are. make sdk notes their hashes, and generates the types anew.
func TestSDKDocuments(t *testing.T) {
	var sums strings.Builder
	for _, name := range []string{"broker/internal/httpapi/openapi.json", "relay/internal/httpapi/openapi.json"} {
		document, err := os.ReadFile("../../" + name)
		require.NoError(t, err)
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(document), name)
	}
	noted, err := os.ReadFile("../../sdk/documents.sha256")
	require.NoError(t, err)
	require.Equal(t, sums.String(), string(noted), "a document has changed: run make sdk, and look at what the hand-written parts of sdk use of it")
}

// loses passes requests on, and answers the first that is posted to a path with 503 although it was carried out.
func loses(t *testing.T, target, path string) string {
	t.Helper()
	to, err := url.Parse(target)
	require.NoError(t, err)
	var seen atomic.Bool
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) },
		ModifyResponse: func(r *http.Response) error {
			if r.Request.Method == http.MethodPost && strings.HasSuffix(r.Request.URL.Path, path) && seen.CompareAndSwap(false, true) {
				r.StatusCode = http.StatusServiceUnavailable
			}
			return nil
		},
	}
	s := httptest.NewServer(proxy)
	t.Cleanup(func() {
		s.Close()
		require.True(t, seen.Load(), "nothing was posted to "+path)
	})
	return s.URL
}

// signedRequests are requests with right and wrong signatures, and what verify says of each.
func signedRequests(t *testing.T, secret, other string) (requests []map[string]any, verdicts []any) {
	t.Helper()
	body := `{"amount": 12, "note": "für Zoë"}`
	add := func(verdict, secret string, at time.Time, sent string, change func(http.Header)) {
		h := signed(t, secret, "m-1", at, []byte(body))
		change(h)
		headers := map[string]string{}
		for name := range h {
			headers[strings.ToLower(name)] = h.Get(name)
		}
		requests, verdicts = append(requests, map[string]any{"headers": headers, "body": sent}), append(verdicts, verdict)
	}
	none := func(http.Header) {}
	now := time.Now()
	add("m-1", secret, now, body, none)
	add("m-1", other+" "+secret, now, body, none)
	add("m-1", secret, now.Add(-4*time.Minute), body, none)
	add("refused", secret, now.Add(-6*time.Minute), body, none)
	add("refused", secret, now.Add(6*time.Minute), body, none)
	add("refused", other, now, body, none)
	add("refused", secret, now, body+" ", none)
	for _, name := range []string{webhook.HeaderID, webhook.HeaderTimestamp, webhook.HeaderSignature} {
		add("refused", secret, now, body, func(h http.Header) { h.Del(name) })
		add("refused", secret, now, body, func(h http.Header) { h.Set(name, "1"+h.Get(name)) })
	}
	return requests, verdicts
}

// The clients in sdk work with the command: claims, retries and signatures.
func TestSDKs(t *testing.T) {
	const admin = "an administrator's token"
	secret, other := webhook.NewSecret(), webhook.NewSecret()
	requests, verdicts := signedRequests(t, secret, other)
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.Copy(w, r.Body)
	}))
	t.Cleanup(receiver.Close)
	for _, l := range []struct{ tool, debian, program, sdk string }{
		{"node", "nodejs", "sdk.mjs", "../../sdk/typescript/src/index.js"},
		{"python3", "python3", "sdk.py", "../../sdk/python"},
	} {
		t.Run(l.tool, func(t *testing.T) {
			needTool(t, l.tool, l.debian)
			t.Parallel()
			broker, stopBroker := listen(t, brokercmd.New(), "--admin-token", admin, "--consumer-connection-connection-timeout-in-seconds", "1",
				"--broker-rational-delay-in-seconds", "1")
			relay, stopRelay := listen(t, relaycmd.New(), "--admin-token", admin)
			config, err := json.Marshal(map[string]any{
				"flakyBroker": loses(t, broker, "/broadcast"), "flakyRelay": loses(t, relay, "/v1/messages"), "admin": admin,
				"receiver": receiver.URL, "secrets": []string{webhook.NewSecret(), secret}, "signed": requests,
			})
			require.NoError(t, err)
			sdk, err := filepath.Abs(l.sdk)
			require.NoError(t, err)
			cmd := exec.CommandContext(t.Context(), l.tool, filepath.Join("testdata", l.program), sdk, string(config))
			cmd.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1")
			cmd.Stderr = t.Output()
			out, err := cmd.Output()
			require.NoError(t, err)
			want, err := json.Marshal(map[string]any{
				"token": "ct", "location": "/channel/orders/message/a%2E1%2F%C3%BC", "duplicate": 409, "denied": 403,
				"claimed": []any{
					[]any{"ff00", "application/octet-stream", "", "", 2},
					[]any{"first", "application/octet-stream", "order.paid", "acme", 1},
				},
				"extended": true, "again": true, "lost": true, "errors": []string{"never", "not now"}, "refused": 403,
				"sent": map[string]any{"amount": 12}, "response": "DONE", "conflict": "conflict", "unknown": true, "verdicts": verdicts,
			})
			require.NoError(t, err)
			require.JSONEq(t, string(want), string(out))

			states := map[string]int{}
			var jobs struct{ Result []struct{ Status string } }
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, broker+"/channel/orders/consumer/k/jobs?limit=100", nil)
			require.NoError(t, err)
			r.Header.Set("X-Broker-Admin-Token", admin)
			resp, err := http.DefaultClient.Do(r)
			require.NoError(t, err)
			require.NoError(t, json.NewDecoder(resp.Body).Decode(&jobs))
			require.NoError(t, resp.Body.Close())
			for _, j := range jobs.Result {
				states[j.Status]++
			}
			require.Equal(t, map[string]int{"DELIVERED": 10, "DEAD": 2}, states)
			require.NoError(t, stopBroker())
			require.NoError(t, stopRelay())
		})
	}
}
