package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/broker"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/brokercmd"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/remote"
)

// newBrokerShell types commands at a broker with the channel orders, of which all tokens are "t".
func newBrokerShell(t *testing.T, args ...string) *shell {
	t.Helper()
	url, stop := listen(t, brokercmd.New(), args...)
	t.Cleanup(func() { require.NoError(t, stop()) })
	s := &shell{t: t, url: url, command: "broker"}
	s.file(`{"token":"t"}`, "channels", "put", "orders")
	s.file(`{"token":"t"}`, "producers", "put", "shop")
	return s
}

// file runs a put with a file.
func (s *shell) file(text string, args ...string) string {
	s.t.Helper()
	code, out, errOut := s.do(s.t.Context(), text, append(args, "--file", "-")...)
	require.Equal(s.t, 0, code, "%s\n%s", args, errOut)
	return out
}

// fails runs a command that has to end with a code and an error.
func (s *shell) fails(code int, want string, args ...string) {
	s.t.Helper()
	got, out, errOut := s.do(s.t.Context(), "", args...)
	require.Equal(s.t, code, got, "%s\n%s%s", args, out, errOut)
	require.Contains(s.t, errOut, want, args)
}

// broadcast has the broker store a message in the channel orders.
func (s *shell) broadcast(id string, header ...string) {
	s.t.Helper()
	h := map[string]string{
		"X-Broker-Channel-Token": "t", "X-Broker-Producer-ID": "shop", "X-Broker-Producer-Token": "t", "X-Broker-Message-ID": id,
		"Content-Type": "text/plain", "X-Broker-Metadata-Headers": "X-Tenant",
	}
	for i := 0; i < len(header); i += 2 {
		h[header[i]] = header[i+1]
	}
	code, text := brokerRequest(s.t, http.MethodPost, s.url+"/channel/orders/broadcast", h, "two chairs")
	require.Equal(s.t, http.StatusCreated, code, text)
}

// view reads what a command prints with --json.
func (s *shell) view(into any, args ...string) {
	s.t.Helper()
	out := s.want(0, append(args, "--json")...)
	require.NoError(s.t, json.Unmarshal([]byte(out), into), out)
}

func TestBrokerObjects(t *testing.T) {
	s := newBrokerShell(t)
	const odd = "a/b .."
	require.Contains(t, s.want(0, "channels", "put", odd, "--name", "Odd"), "Odd")
	require.Regexp(t, `a/b \.\. +Odd +2`, s.want(0, "channels", "ls"))
	require.Equal(t, 1, strings.Count(s.want(0, "channels", "ls", "--limit", "1", "--json"), "\n"))
	require.NotContains(t, s.want(0, "channels", "ls", "--json"), "Token")

	secrets := `{"token":"kt","signingSecret":"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw","headers":{"X-Api-Key":"k"},"eventTypes":["order.*","x"]}`
	s.file(secrets, "consumers", "put", odd, "k", "--callback-url", "http://127.0.0.1:9/", "--type", "pull", "--concurrency", "3")
	require.NotContains(t, s.want(0, "consumers", "put", odd, "k", "--rate-limit", "2.5"), "whsec_")
	var k struct {
		Token, CallbackURL, Type, EventTypes, Name string
		Concurrency                                int
		RateLimit                                  float64
		Signed                                     bool
		Headers                                    map[string]string
	}
	s.view(&k, "consumers", "get", odd, "k")
	require.Equal(t, "kt http://127.0.0.1:9/ pull order.*,x k", strings.Join([]string{k.Token, k.CallbackURL, k.Type, k.EventTypes, k.Name}, " "),
		"what was not given stays")
	require.Equal(t, "3 2.5 true 1", fmt.Sprint(k.Concurrency, k.RateLimit, k.Signed, len(k.Headers)))
	require.NotContains(t, s.file(`{"signingSecret":null,"headers":null}`, "consumers", "put", odd, "k"), "Signed\": true")
	require.Contains(t, s.file(`{"token":"kt"}`, "consumers", "replace", odd, "k", "--callback-url", "http://127.0.0.1:9/", "--type", "pull"), "kt")
	k.Concurrency, k.RateLimit, k.EventTypes = 0, 0, ""
	s.view(&k, "consumers", "get", odd, "k")
	require.Equal(t, "0 0 ", fmt.Sprint(k.Concurrency, k.RateLimit, " ")+k.EventTypes, "replace keeps nothing")
	s.want(0, "channels", "put", odd)
	require.Regexp(t, `a/b \.\. +Odd +2`, s.want(0, "channels", "ls"))
	require.NotContains(t, s.want(0, "channels", "replace", odd), "Odd")
	require.Contains(t, s.want(0, "consumers", "pause", odd, "k"), "paused")
	require.Regexp(t, `a/b \.\. +k +pull +paused +operator`, s.want(0, "consumers", "ls", odd))
	require.Empty(t, s.want(0, "consumers", "ls", "orders"))
	require.Contains(t, s.want(0, "consumers", "resume", odd, "k"), "active")

	require.Contains(t, s.want(0, "access", "put", "orders", "reports", "--role", "read"), `"Token": "`)
	require.Regexp(t, `reports +reports +read`, s.want(0, "access", "ls", "orders"))
	kept := s.want(0, "access", "put", "orders", "reports", "--role", "publish")
	require.Contains(t, kept, `"Role": "publish"`)
	require.NotContains(t, kept, "sha256")
	require.Contains(t, s.file(`{"token":null}`, "access", "put", "orders", "reports"), `"Token": "`)
	require.Empty(t, s.want(0, "access", "rm", "orders", "reports"))

	s.fails(1, "the channel is in use: it has 1 consumers and 0 scheduled messages: delete them with it by --force", "channels", "rm", odd)
	require.Empty(t, s.want(0, "channels", "rm", odd, "--force"))
	require.Empty(t, s.want(0, "producers", "rm", "shop"))
	require.NotContains(t, s.want(0, "channels", "ls")+s.want(0, "producers", "ls"), "shop")

	for _, tt := range []struct {
		code int
		want string
		args []string
	}{
		{1, `no channel "none"; see what there is with: jetpull broker channels ls`, []string{"channels", "show", "none"}},
		{1, `no channel "none"`, []string{"consumers", "ls", "none"}},
		{1, `no consumer "none"; see what there is with: jetpull broker consumers ls orders`, []string{"consumers", "pause", "orders", "none"}},
		{1, `no message "none"`, []string{"messages", "show", "orders", "none"}},
		{1, `no replay "9-9"`, []string{"replay", "status", "sample-channel", "sample-consumer", "9-9"}},
		{1, "callbackUrl", []string{"consumers", "put", "orders", "k", "--callback-url", "nothing"}},
		{1, "role", []string{"access", "put", "orders", "x", "--role", "boss"}},
		{2, "usage: jetpull broker channels rm CHANNEL", []string{"channels", "rm"}},
		{2, "usage: ", []string{"channels", "rm", ""}},
		{2, "--limit -1", []string{"channels", "ls", "--limit", "-1"}},
		{2, "neither a time", []string{"messages", "ls", "orders", "--since", "soon"}},
		{2, "--message: it is empty", []string{"replay", "start", "sample-channel", "sample-consumer", "--message", ""}},
		{2, "--status: it is empty", []string{"replay", "start", "sample-channel", "sample-consumer", "--status", ""}},
		{
			1, `no message "none"; see what there is with: jetpull broker messages ls`,
			[]string{"replay", "start", "sample-channel", "sample-consumer", "--message", "none"},
		},
		{2, "--rate NaN is no number", []string{"replay", "start", "sample-channel", "sample-consumer", "--rate", "NaN"}},
		{2, "--file: it is empty", []string{"channels", "put", "orders", "--file", ""}},
		{1, "--file: open none: ", []string{"channels", "put", "orders", "--file", "none"}},
		{2, "not a JSON object", []string{"channels", "put", "x", "--file", "-"}},
		{2, "give messages, whose IDs jobs ls shows, or --all", []string{"jobs", "purge", "orders", "k"}},
		{1, "Rate: 0: give a number", []string{"replay", "start", "sample-channel", "sample-consumer", "--rate", "0"}},
	} {
		s.fails(tt.code, tt.want, tt.args...)
	}
	code, _, errOut := s.do(t.Context(), `{"colour":"red"}`, "channels", "put", "x", "--file", "-")
	require.Equal(t, 2, code)
	require.Contains(t, errOut, `a channel has no field "colour", but token, name`)
}

// A put and an rm do not overwrite a change that the broker refuses to lose.
func TestBrokerPutOverAnotherChange(t *testing.T) {
	s := newBrokerShell(t)
	to, err := url.Parse(s.url)
	require.NoError(t, err)
	proxy := httputil.NewSingleHostReverseProxy(to)
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			r.Header.Set("If-Match", `"0"`) // somebody else has changed it since
		}
		proxy.ServeHTTP(w, r)
	}))
	defer front.Close()
	late := &shell{t: t, url: front.URL, command: "broker"}
	late.fails(1, "it was changed by another request", "channels", "put", "orders", "--name", "late")
	late.fails(1, "it was changed by another request", "producers", "rm", "shop")
	require.NotContains(t, s.want(0, "channels", "ls"), "late")
}

// A channel with thousands of consumers is deleted in as long as it takes: --timeout is not for this request.
func TestBrokerDeletionThatTakesLong(t *testing.T) {
	t.Parallel()
	s := newBrokerShell(t)
	for i := range 5 {
		s.want(0, "consumers", "put", "orders", fmt.Sprint("k", i), "--callback-url", "http://127.0.0.1:9/", "--type", "pull")
	}
	s.want(0, "channels", "rm", "orders", "--force", "--timeout", "1ns")
	require.NotContains(t, s.want(0, "channels", "ls"), "orders")
}

// deadOrders makes dead jobs of n messages, and lets what is tried again pass.
func deadOrders(t *testing.T, n int) (s *shell, open func()) {
	s = newBrokerShell(t, "--broker-max-retry", "1", "--broker-retry-backoff-delays-in-seconds", "0")
	var well atomic.Bool
	s.want(0, "consumers", "put", "orders", "billing", "--callback-url", newReceiver(t, func() int {
		if well.Load() {
			return 200
		}
		return 500
	}))
	for i := range n {
		s.broadcast(fmt.Sprintf("m%d", i), "X-Tenant", []string{"acme", "other"}[i%2])
	}
	require.Eventually(t, func() bool { return s.count("DEAD") == n }, 30*time.Second, 20*time.Millisecond)
	return s, func() { well.Store(true) }
}

// count counts the jobs of billing in a status.
func (s *shell) count(status string) int {
	return strings.Count(s.want(0, "jobs", "ls", "orders", "billing", "--limit", "0", "--status", status, "--json"), "\n")
}

func TestBrokerJobs(t *testing.T) {
	t.Parallel()
	s, open := deadOrders(t, 30)
	require.Equal(t, 30, s.count("DEAD"), "over several pages")
	require.Equal(t, 4, strings.Count(s.want(0, "jobs", "ls", "orders", "billing", "--limit", "2"), "\n"))
	require.Regexp(t, `(?m)^m29 +DEAD +\S+ \S+ +1 +2$`, s.want(0, "jobs", "ls", "orders", "billing"))
	require.Regexp(t, `"Attempts": 2\b`, s.want(0, "jobs", "show", "orders", "billing", "m3"))
	require.Regexp(t, `(?m)^ +2 .* 500 .*\{"build":17\}$`, s.want(0, "jobs", "attempts", "orders", "billing", "m3"))
	require.Regexp(t, `orders +billing +push +active .* 0 +0 +0 +30\n`, s.want(0, "consumers", "ls", "orders"))
	s.fails(2, "jobs ls shows, or --all", "jobs", "purge", "orders", "billing")
	require.Equal(t, "30 jobs\n", s.want(0, "replay", "start", "orders", "billing", "--status", "DEAD", "--dry-run"))
	require.Empty(t, s.want(0, "jobs", "purge", "orders", "billing", "m0"))
	s.fails(1, `message "m0": consumer "billing" has no job of message "m0"`, "jobs", "purge", "orders", "billing", "m0")
	s.fails(1, `no message "none"`, "replay", "start", "orders", "billing", "--message", "none")
	open()
	for _, message := range []string{"m1", "m2"} {
		require.Regexp(t, `^replay \S+: DONE, 1 of 1 job\n$`, s.want(0, "replay", "start", "orders", "billing", "--status", "DEAD", "--message", message))
	}
	require.Eventually(t, func() bool { return s.count("DELIVERED") == 2 }, 30*time.Second, 10*time.Millisecond)
	s.fails(1, `message "m1": its job is not dead, but DELIVERED`, "jobs", "purge", "orders", "billing", "m1")
	require.Regexp(t, `^replay \S+: DONE, 27 of 27 jobs\n$`, s.want(0, "replay", "start", "orders", "billing", "--status", "DEAD", "--rate", "10000"))
	require.Eventually(t, func() bool { return s.count("DELIVERED") == 29 }, 30*time.Second, 10*time.Millisecond)
	require.Equal(t, "0 dead jobs deleted\n", s.want(0, "jobs", "purge", "orders", "billing", "--all"))
	require.Equal(t, "14 jobs\n", s.want(0, "replay", "start", "orders", "billing", "--status", "DELIVERED", "--metadata", "X-Tenant=acme", "--since",
		"1h", "--dry-run"))
	require.Equal(t, "0 jobs\n", s.want(0, "replay", "start", "orders", "billing", "--until", "2026-01-02T15:04:05Z", "--dry-run"))
}

// A purge drops a backlog, and leaves the callback that is in progress.
func TestBrokerPurgeQueued(t *testing.T) {
	s := newBrokerShell(t)
	begun, end := make(chan struct{}, 1), make(chan struct{})
	s.want(0, "consumers", "put", "orders", "billing", "--concurrency", "1", "--callback-url", newReceiver(t, func() int {
		begun <- struct{}{}
		<-end
		return 200
	}))
	for i := range 10 {
		s.broadcast(fmt.Sprintf("m%d", i), "X-Tenant", "acme")
	}
	<-begun
	require.Equal(t, "9 jobs\n", s.want(0, "jobs", "purge-queued", "orders", "billing", "--dry-run"))
	require.Regexp(t, `^purge-queued \S+: DONE, 9 of 9 jobs\n$`, s.want(0, "jobs", "purge-queued", "orders", "billing"))
	require.Regexp(t, `orders +billing +\S+ +purge-queued +DONE +9 +0 +9 +0 +0`, s.want(0, "replay", "ls", "orders", "billing"))
	close(end)
	require.Eventually(t, func() bool { return s.count("DELIVERED") == 1 && s.count("QUEUED") == 0 }, time.Minute, 10*time.Millisecond)
	require.Empty(t, begun, "no other callback was made")
}

// An interrupt leaves a replay to the broker and says how to go on.
func TestBrokerInterruptedReplay(t *testing.T) {
	s, _ := deadOrders(t, 20)
	to, err := url.Parse(s.url)
	require.NoError(t, err)
	ctx, interrupt := context.WithCancel(t.Context())
	proxy, looks := httputil.NewSingleHostReverseProxy(to), 0
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if looks++; looks == 3 { // the start, and two looks
			interrupt()
		}
		proxy.ServeHTTP(w, r)
	}))
	defer front.Close()
	code, _, errOut := (&shell{t: t, url: front.URL, command: "broker"}).do(ctx, "", "replay", "start", "orders", "billing", "--rate", "1")
	require.Equal(t, cli.ExitInterrupted, code, errOut)
	require.Contains(t, errOut, "The replay continues in the broker, with ")
	_, rest, ok := strings.Cut(errOut, "jetpull broker replay cancel orders billing ")
	require.True(t, ok, errOut)
	id, _, _ := strings.Cut(rest, " ")
	require.Contains(t, errOut, "jetpull broker replay status --follow orders billing "+id+" ")
	s.fails(1, "is running: wait for its end", "replay", "start", "orders", "billing", "--message", "m1")
	require.Contains(t, s.want(0, "replay", "status", "orders", "billing", id), "RUNNING")
	require.Empty(t, s.want(0, "replay", "cancel", "orders", "billing", id))
	require.Contains(t, s.want(0, "replay", "status", "orders", "billing", id, "--follow"), "CANCELLED")
	require.Regexp(t, `orders +billing +`+id+` +replay +CANCELLED +20 `, s.want(0, "replay", "ls", "orders"))
	require.Regexp(t, `RUNNING, \d+ of `, s.want(0, "replay", "start", "orders", "billing", "--rate", "1", "--detach"))
}

func TestBrokerMessages(t *testing.T) {
	s := newBrokerShell(t)
	for i := range 30 {
		s.broadcast(fmt.Sprintf("m%d", i), "X-Tenant", "acme", "X-Broker-Event-Type", []string{"order.paid", "refund"}[i%2])
	}
	ids := func(args ...string) (ids []string) {
		t.Helper()
		for line := range strings.Lines(s.want(0, append([]string{"messages", "ls", "orders", "--json"}, args...)...)) {
			var m struct{ ID, Payload string }
			require.NoError(t, json.Unmarshal([]byte(line), &m))
			require.Equal(t, "two chairs", m.Payload)
			ids = append(ids, m.ID)
		}
		return ids
	}
	require.Len(t, ids(), 30)
	require.Equal(t, []string{"m29", "m28"}, ids("--limit", "2"))
	require.Equal(t, []string{"m7"}, ids("--id", "m7"))
	require.Len(t, ids("--event-type", "order.*", "--metadata", "X-Tenant=acme", "--since", "1h"), 15)
	require.Empty(t, ids("--until", "1h"))
	require.Regexp(t, `"X-Tenant": "acme"`, s.want(0, "messages", "show", "orders", "m7"))

	later := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
	s.broadcast("later", "X-Broker-Scheduled-For", later)
	s.broadcast("orphan", "X-Broker-Scheduled-For", later)
	require.Regexp(t, `(?m)^later +\S+ \S+ +SCHEDULED +shop`, s.want(0, "scheduled", "ls", "orders"))
	require.Contains(t, s.want(0, "scheduled", "show", "orders", "later"), "SCHEDULED")
	require.Empty(t, s.want(0, "scheduled", "cancel", "orders", "later"))
	s.fails(1, `no scheduled message "later"`, "scheduled", "cancel", "orders", "later")
	s.want(0, "producers", "rm", "shop")
	s.fails(1, "producer could not be found", "scheduled", "cancel", "orders", "orphan")
}

// With the admin token no other is needed, also where the broker knows only their hashes.
func TestBrokerAdminToken(t *testing.T) {
	t.Setenv("JETPULL_BROKER_ADMIN_TOKEN", "sesame")
	s := newBrokerShell(t, "--admin-token", "sesame", "--admin-hash-tokens", "true")
	require.Contains(t, s.want(0, "channels", "put", "orders", "--name", "Orders"), `"Name": "Orders"`, "its token stays, as is seen below")
	s.want(0, "consumers", "put", "orders", "billing", "--callback-url", "http://127.0.0.1:9/", "--type", "pull")
	s.fails(1, "channel token does not match", "broadcast", "orders", "shop", "x")
	t.Setenv("JETPULL_BROKER_CHANNEL_TOKEN", "t")
	t.Setenv("JETPULL_BROKER_PRODUCER_TOKEN", "t")
	s.want(0, "broadcast", "orders", "shop", "x", "--id", "m1")
	require.Contains(t, s.want(0, "claim", "orders", "billing"), "m1")
	t.Setenv("JETPULL_BROKER_CHANNEL_TOKEN", "")
	t.Setenv("JETPULL_BROKER_PRODUCER_TOKEN", "")
	s.file(`{"token":"pub"}`, "access", "put", "orders", "team", "--role", "publish")
	s.want(0, "broadcast", "orders", "shop", "x", "--id", "m2", "--admin-token", "pub")
	s.fails(1, "does not allow it", "broadcast", "orders", "shop", "x", "--admin-token", "wrong")
	s.broadcast("later", "X-Broker-Scheduled-For", time.Now().Add(time.Hour).UTC().Format(time.RFC3339))
	s.want(0, "producers", "rm", "shop")
	require.Empty(t, s.want(0, "scheduled", "cancel", "orders", "later"))
	require.Equal(t, "0 dead jobs deleted\n", s.want(0, "jobs", "purge", "orders", "billing", "--all"))
	s.fails(1, "the token of --admin-token or $JETPULL_BROKER_ADMIN_TOKEN does not allow it", "channels", "ls", "--admin-token", "wrong")
	t.Setenv("JETPULL_BROKER_ADMIN_TOKEN", "")
	s.fails(1, "give --admin-token or $JETPULL_BROKER_ADMIN_TOKEN", "channels", "ls")
}

func TestNoBroker(t *testing.T) {
	s := &shell{t: t, url: "http://127.0.0.1:1", command: "broker"}
	s.fails(1, "start one with jetpull broker, or give --url or $JETPULL_BROKER_URL", "channels", "ls")
	s.fails(1, "start one with jetpull broker", "backup", filepath.Join(t.TempDir(), "x"))
	s.url = "ftp://x"
	s.fails(2, `--url "ftp://x" is not a URL`, "channels", "ls")
	require.Empty(t, broker.StrayVariables([]string{remote.BrokerURL + "=x"}, remote.BrokerURL))
	require.Len(t, broker.StrayVariables([]string{"JETPULL_BROKER_UR=x"}, remote.BrokerURL), 1)
}

func TestCompletionScripts(t *testing.T) {
	for _, language := range []string{"bash", "zsh", "fish"} {
		var out strings.Builder
		require.Equal(t, 0, execute(t.Context(), []string{"completion", language}, nil, &out, os.Stderr))
		require.Contains(t, out.String(), "__complete")
	}
}

// The commands of the guide run as they are written there.
func TestAdministrationOfTheGuide(t *testing.T) {
	commands, err := commandsOf("../../docs/command.md", "Administer a broker")
	require.NoError(t, err)
	require.Greater(t, len(commands), 10)
	s := newBrokerShell(t, "--broker-max-retry", "0")
	t.Setenv(remote.BrokerURL, s.url)
	callback := newReceiver(t, func() int { return 500 })
	for _, line := range commands {
		line, _, _ = strings.Cut(strings.TrimSpace(line), " #")
		words := strings.Fields(strings.ReplaceAll(line, "http://127.0.0.1:9090/hook", callback))
		require.Equal(t, "jetpull", words[0])
		var out, errOut strings.Builder
		require.Equal(t, 0, execute(t.Context(), words[1:], nil, &out, &errOut), "%s: %s", line, &errOut)
		if strings.Contains(line, "consumers put") {
			s.broadcast("order-1", "X-Tenant", "acme", "X-Broker-Event-Type", "order.paid")
			require.Eventually(t, func() bool { return s.count("DEAD") == 1 }, 30*time.Second, 10*time.Millisecond)
		}
		if strings.Contains(line, "messages ls") || strings.Contains(line, "jobs ls") {
			require.Contains(t, out.String(), "order-1", line)
		}
		if strings.Contains(line, "--message order-1") {
			require.Contains(t, out.String(), "DONE, 1 of 1 job")
			require.Eventually(t, func() bool { return s.count("DEAD") == 1 }, 30*time.Second, 10*time.Millisecond)
		}
	}
}

func TestBroadcastAndClaim(t *testing.T) {
	s := newBrokerShell(t)
	consumer := func(id string) {
		s.want(0, "consumers", "put", "orders", id, "--callback-url", "http://127.0.0.1:9/", "--type", "pull", "--event-types", id)
	}
	consumer("paid")
	require.Equal(t, "/channel/orders/message/o%2F1\n", s.want(0, "broadcast", "orders", "shop", "two chairs", "--id", "o/1", "--event-type", "paid",
		"--priority", "3", "-H", "X-Tenant: acme", "-H", "content-type: text/plain"))
	s.fails(1, "duplicate message id", "broadcast", "orders", "shop", "two chairs", "--id", "o/1")
	s.fails(1, `no channel "none"`, "broadcast", "none", "shop", "x")
	s.fails(1, `no producer "none"`, "broadcast", "orders", "none", "x")
	code, out, errOut := s.do(t.Context(), "\xff\x00\n", "broadcast", "orders", "shop", "--json", "--event-type", "paid", "--id", "raw")
	require.Equal(t, 0, code, errOut)
	require.JSONEq(t, `{"location": "/channel/orders/message/raw"}`, out)
	require.Regexp(t, `"X-Tenant": "acme"`, s.want(0, "messages", "show", "orders", "o/1"))

	var job struct {
		Priority                   int
		ClaimToken, ClaimExpiresAt string
		Message                    struct{ MessageID, Payload, PayloadEncoding, ContentType string }
	}
	s.view(&job, "claim", "orders", "paid", "--settle", "none")
	require.NotEmpty(t, job.ClaimToken)
	require.Equal(t, 3, job.Priority)
	require.Equal(t, "o/1 two chairs text/plain", job.Message.MessageID+" "+job.Message.Payload+" "+job.Message.ContentType)
	s.view(&job, "claim", "orders", "paid", "--count", "10", "--wait", "20s")
	require.Equal(t, "raw /wAK base64", job.Message.MessageID+" "+job.Message.Payload+" "+job.Message.PayloadEncoding)
	s.fails(cli.ExitTimeout, "jetpull: no job was queued within 10ms\n", "claim", "orders", "paid", "--wait", "10ms")
	s.want(0, "broadcast", "orders", "shop", "x", "--event-type", "paid", "--id", "bad")
	require.Regexp(t, `(?m)^bad +0 +paid `, s.want(0, "claim", "orders", "paid", "--settle", "dead"))
	require.Regexp(t, `(?m)^bad +DEAD `, s.want(0, "jobs", "ls", "orders", "paid"))
	require.Regexp(t, `(?m)^raw +DELIVERED `, s.want(0, "jobs", "ls", "orders", "paid"))
	require.Regexp(t, `(?m)^o/1 +INFLIGHT `, s.want(0, "jobs", "ls", "orders", "paid"))
	s.fails(cli.ExitUsage, `--settle "done" is none of`, "claim", "orders", "paid", "--settle", "done")
	s.fails(cli.ExitUsage, "--count", "claim", "orders", "paid", "--count", "101")
	s.fails(1, `no consumer "none"`, "claim", "orders", "none")
	s.want(0, "consumers", "put", "orders", "pushed", "--callback-url", "http://127.0.0.1:9/", "--event-types", "none")
	s.fails(1, "consumer not pull based\n", "claim", "orders", "pushed")
	later := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
	require.Equal(t, "/channel/orders/scheduled-message/later\n", s.want(0, "broadcast", "orders", "shop", "x", "--id", "later", "--at", later))
}
