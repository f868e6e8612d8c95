package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
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
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/relaycmd"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/remote"
	"github.com/jetpull/jetpull/relay"
)

// shell types commands.
type shell struct {
	t        *testing.T
	url      string
	command  string // of the system; relay if empty
	out, err buffer
}

// do runs jetpull relay, or broker, with args, and returns its exit code and what it printed.
func (s *shell) do(ctx context.Context, in string, args ...string) (code int, out, errOut string) {
	s.t.Helper()
	s.out, s.err = buffer{}, buffer{}
	args = append([]string{cmp.Or(s.command, "relay")}, args...)
	if s.url != "" {
		args = append(args, "--url", s.url)
	}
	code = execute(ctx, args, strings.NewReader(in), &s.out, &s.err)
	return code, s.out.String(), s.err.String()
}

// want runs a command that has to end with a code, and returns its standard output.
func (s *shell) want(code int, args ...string) string {
	s.t.Helper()
	got, out, errOut := s.do(s.t.Context(), "", args...)
	require.Equal(s.t, code, got, "%s\n%s%s", args, out, errOut)
	return out
}

// await runs a command until it prints some text.
func (s *shell) await(text string, args ...string) {
	s.t.Helper()
	require.Eventually(s.t, func() bool { return strings.Contains(s.want(0, args...), text) }, time.Minute, 10*time.Millisecond, text)
}

func newShell(t *testing.T, args ...string) *shell {
	url, stop := listen(t, relaycmd.New(), args...)
	t.Cleanup(func() { require.NoError(t, stop()) })
	return &shell{t: t, url: url}
}

// newReceiver answers each POST with what code says.
func newReceiver(t *testing.T, code func() int) string {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.WriteHeader(code())
		_, _ = io.WriteString(w, `{"build":17}`)
	}))
	t.Cleanup(server.Close)
	return server.URL
}

func TestReceiversCommands(t *testing.T) {
	s := newShell(t)
	out := s.want(0, "receivers", "put", "c/i", "--post-endpoint", "http://127.0.0.1:9/x", "--rate-limit", "200", "--window-size", "2.5", "--paused")
	require.Regexp(t, `(?s)"rate_limit": 200,.*"window_size": 2.5,`, out)
	require.Regexp(t, `c/i +http://127.0.0.1:9/x +200 +2.5 +none +true +false +closed +0\n`, s.want(0, "receivers", "ls"))
	out = s.want(0, "receivers", "show", "c/i", "--json")
	var view struct{ State struct{ Breaker string } }
	require.NoError(t, json.Unmarshal([]byte(out), &view))
	require.Equal(t, "closed", view.State.Breaker)
	require.Equal(t, 1, strings.Count(out, "\n"))

	file := filepath.Join(t.TempDir(), "ci.json")
	require.NoError(t, os.WriteFile(file, []byte(`{"post_endpoint":"http://127.0.0.1:9/y","secrets":["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"],"max_retries":1}`), 0o600))
	out = s.want(0, "receivers", "put", "c/i", "--file", file, "--max-retries", "7")
	require.Regexp(t, `(?s)"rate_limit": 200,\s+"max_retries": 7,.*"paused": true,\s+"window_size": 2.5,\s+"retry_after": 5,`, out, "what is not given stays")
	require.Regexp(t, `"secret_count": 1\b`, out)
	require.NotContains(t, out, "whsec")
	out = s.want(0, "receivers", "replace", "c/i", "--post-endpoint", "http://127.0.0.1:9/z")
	require.Regexp(t, `(?s)"rate_limit": 0,\s+"max_retries": 5,.*"paused": false,\s+"window_size": 1,\s+"retry_after": 5,`, out, "what is not given has its default")
	require.Regexp(t, `"secret_count": 1\b`, out)
	require.Empty(t, s.want(0, "receivers", "rm", "c/i"))
	require.NotContains(t, s.want(0, "receivers", "ls"), "c/i")
	code, _, errOut := s.do(t.Context(), "", "receivers", "show", "c/i")
	require.Equal(t, 1, code)
	require.Contains(t, errOut, `no receiver "c/i"; see what there is with: jetpull relay receivers ls`)
}

func TestSendersCommands(t *testing.T) {
	s := newShell(t, "--admin-token", "sesame")
	t.Setenv(remote.RelayToken, "sesame")
	put := func(in string, args ...string) string {
		t.Helper()
		code, out, errOut := s.do(t.Context(), in, append([]string{"senders", "put", "s/1"}, args...)...)
		require.Equal(t, 0, code, errOut)
		return out
	}
	const secret = `"secrets":["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"]`
	out := put(`{"token":"of-the-shop",`+secret+`}`, "--file", "-", "--callback-endpoint", "http://127.0.0.1:9/done", "--sources", "shop/",
		"--sources", "a b, c")
	require.Regexp(t, `"callback_endpoint": "http://127.0.0.1:9/done"`, out)
	require.Regexp(t, `"secret_count": 1,\s+"sources": \[\s+"shop/",\s+"a b, c"\s+\]`, out)
	require.Regexp(t, `s/1 +http://127.0.0.1:9/done +\["shop/","a b, c"\] +1\n`, s.want(0, "senders", "ls"))
	require.Regexp(t, `/done",\s+"secret_count": 1,\s+"sources": \[\s+""\s+\]`, put("", "--sources", ""), "what is not given stays")
	require.Regexp(t, `"callback_endpoint": "http://127.0.0.1:9/x",\s+"secret_count": 1,\s+"sources": \[\s+""\s+\]`, put("", "--callback-endpoint", "http://127.0.0.1:9/x"))
	require.Regexp(t, `"secret_count": 1,\s+"sources": \[\s+"s"\s+\]`, s.want(0, "senders", "replace", "s/1", "--sources", "s"), "token and secrets stay")
	require.Regexp(t, `"secret_count": 1,\s+"sources": \[\s+""\s+\]`, put("", "--sources", ""))
	all := s.want(0, "senders", "show", "s/1", "--json") + s.want(0, "senders", "ls", "--json")
	const want = `{"name":"s/1","callback_endpoint":"","secret_count":1,"sources":[""]}` + "\n"
	require.Equal(t, want+want, all)
	s.want(0, "receivers", "put", "ci", "--post-endpoint", newReceiver(t, func() int { return 200 }))
	s.want(0, "send", "--token", "of-the-shop", "--source", "shop/2", "--id", "1", "--receiver", "ci", "1")
	require.Empty(t, s.want(0, "senders", "rm", "s/1"))
	require.NotContains(t, s.want(0, "senders", "ls"), "s/1")
	for _, tt := range []struct {
		code int
		want string
		args []string
	}{
		{1, `no sender "s/1"`, []string{"senders", "show", "s/1"}},
		{
			2, `sender "s/1" is new and needs a token of its own, which its requests carry: give {"token": "…"} in --file`,
			[]string{"senders", "put", "s/1", "--sources", "a"},
		},
		{1, "sources: give the", []string{"senders", "put", "s/2", "--file", "-"}},
		{1, "the token of --token", []string{"senders", "put", "s/2", "--sources", "a", "--token", "of-the-shop"}},
	} {
		code, _, errOut := s.do(t.Context(), `{"token":"t"}`, tt.args...)
		require.Equal(t, tt.code, code, errOut)
		require.Contains(t, errOut, tt.want)
	}
}

// A file that is JSON and no object is refused by its name.
func TestReceiverFileThatIsNoObject(t *testing.T) {
	s := &shell{t: t, url: "http://127.0.0.1:1"}
	for _, text := range []string{"null", "[]", "{", ""} {
		path := filepath.Join(t.TempDir(), "ci.json")
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		code, _, errOut := s.do(t.Context(), "", "receivers", "put", "ci", "--file", path, "--paused")
		require.Equal(t, 2, code, "%q: %s", text, errOut)
		require.Contains(t, errOut, path, text)
	}
}

func TestSendAndStatus(t *testing.T) {
	s := newShell(t)
	s.want(0, "receivers", "put", "ci", "--post-endpoint", newReceiver(t, func() int { return 200 }))
	require.Equal(t, "DONE\n{\"build\":17}\n", s.want(0, "send", "--source", "a b", "--id", "1/2", "--receiver", "ci", "--wait", "20s", `{"x":1}`))
	require.Equal(t, "DONE\n", s.want(0, "send", "--source", "a b", "--id", "1/2", "--receiver", "ci", `{"x":1}`), "a duplicate")
	code, out, _ := s.do(t.Context(), "not JSON", "send", "--source", "s", "--id", "text", "--receiver", "ci", "--text", "-H", "X-A: b=c", "--wait",
		"20s", "--json")
	require.Equal(t, 0, code)
	require.JSONEq(t, `{"source_id":"s","message_id":"text","status":"DONE","response":{"build":17}}`, out)
	out = s.want(0, "status", "a b", "1/2")
	require.Regexp(t, `(?s)"status": "DONE",\s+"response": \{\s+"build": 17\s.*"receiver": "ci",`, out)
	require.Regexp(t, `"number": 1,\s+"time": "[^"]+",\s+"code": 200,\s+"duration": `, out)
	require.Equal(t, "DONE\n{\"build\":17}\n", s.want(0, "status", "a b", "1/2", "--wait", "1s"))
}

func TestSendThatFails(t *testing.T) {
	s := newShell(t)
	s.want(0, "receivers", "put", "ci", "--post-endpoint", newReceiver(t, func() int { return 400 }))
	s.want(0, "receivers", "put", "off", "--post-endpoint", "http://127.0.0.1:9", "--paused")
	code, out, errOut := s.do(t.Context(), "", "send", "--source", "s", "--id", "1", "--receiver", "ci", "--wait", "20s", "1")
	require.Equal(t, cli.ExitFailed, code)
	require.Equal(t, "FAILED\n", out)
	require.Contains(t, errOut, "the message has failed")
	require.Regexp(t, `"status": "FAILED"`, s.want(0, "status", "s", "1"))
	require.Equal(t, "ARRIVED\n", s.want(cli.ExitTimeout, "send", "--source", "s", "--id", "2", "--receiver", "off", "--wait", "10ms", "1"))
	require.Regexp(t, `"for": "pause"`, s.want(0, "status", "s", "2"))
	s.want(0, "receivers", "put", "slow", "--post-endpoint", newReceiver(t, func() int { return 500 }), "--retry-after", "600")
	s.want(0, "send", "--source", "s", "--id", "3", "--receiver", "slow", "1")
	s.await(`"until": "2`, "status", "s", "3")
	s.want(0, "receivers", "put", "gone", "--post-endpoint", newReceiver(t, func() int { return 410 }))
	s.want(0, "send", "--source", "s", "--id", "4", "--receiver", "gone", "1")
	s.await("true      closed", "receivers", "ls")
	s.await(`: "disabled"`, "status", "s", "4")
	s.await(`: "disabled"`, "receivers", "show", "gone")
	s.want(0, "receivers", "put", "gone", "--retry-after", "7")
	s.await(`: "disabled"`, "receivers", "show", "gone")
	code, out, errOut = s.do(t.Context(), `{"enable":true}`, "receivers", "put", "gone", "--paused", "--file", "-")
	require.Equal(t, 0, code, errOut)
	require.Regexp(t, `"retry_after": 7,`, out)
	require.Regexp(t, `"disabled": false`, s.want(0, "receivers", "show", "gone"))
	for _, tt := range []struct {
		code int
		want string
		args []string
	}{
		{2, `required flag(s) "source" not set`, []string{"send", "--id", "1", "--receiver", "ci", "1"}},
		{2, `the payload "{" is not JSON`, []string{"send", "--source", "s", "--id", "1", "--receiver", "ci", "{"}},
		{2, `--header "x" is not 'Name: value'`, []string{"send", "--source", "s", "--id", "1", "--receiver", "ci", "--header", "x", "1"}},
		{2, "--wait 6m0s is not in 0s..5m0s", []string{"send", "--source", "s", "--id", "1", "--receiver", "ci", "--wait", "6m", "1"}},
		{2, "--wait -1s is not", []string{"status", "s", "1", "--wait", "-1s"}},
		{1, `no receiver "nobody"`, []string{"send", "--source", "s", "--id", "9", "--receiver", "nobody", "1"}},
		{1, "another payload", []string{"send", "--source", "s", "--id", "1", "--receiver", "ci", "2"}},
		{2, "usage: jetpull relay status SOURCE MESSAGE", []string{"status", "s"}},
		{2, "unknown flag", []string{"status", "--nope"}},
		{1, `no operation "nothing"`, []string{"operations", "status", "nothing"}},
		{2, "or --all", []string{"redrive"}},
		{2, "either IDs or flags", []string{"redrive", "1", "--all"}},
		{1, "ids: \"x\"", []string{"redrive", "x"}},
		{2, "--limit -1", []string{"failed", "ls", "--limit", "-1"}},
		{1, `no receiver "nobody"; see what there is with: jetpull relay receivers ls`, []string{"failed", "ls", "--receiver", "nobody"}},
		{1, `no receiver "nobody"; see what there is with: jetpull relay receivers ls`, []string{"redrive", "--receiver", "nobody"}},
		{2, "neither a time", []string{"failed", "ls", "--since", "soon"}},
		{2, "neither a time", []string{"redrive", "--until", "soon"}},
		{1, "post_endpoint", []string{"receivers", "put", "x"}},
		{2, "not a JSON object", []string{"receivers", "put", "x", "--file", "-"}},
	} {
		code, _, errOut := s.do(t.Context(), "", tt.args...)
		require.Equal(t, tt.code, code, "%s: %s", tt.args, errOut)
		require.Contains(t, errOut, tt.want)
	}
}

func TestRelayThatIsNotThere(t *testing.T) {
	for args, want := range map[string]string{"http://127.0.0.1:1": "not available", "127.0.0.1:8080": "is not a URL", "ftp://x": "is not a URL"} {
		s := &shell{t: t, url: args}
		code, _, errOut := s.do(t.Context(), "", "receivers", "ls")
		require.NotEqual(t, 0, code)
		require.Contains(t, errOut, want)
	}
	hangs := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	defer hangs.Close()
	s := &shell{t: t, url: hangs.URL}
	code, _, errOut := s.do(t.Context(), "", "receivers", "ls", "--timeout", "20ms")
	require.Equal(t, cli.ExitTimeout, code, errOut)
	page := httptest.NewServer(http.NotFoundHandler())
	defer page.Close()
	s.url = page.URL
	code, _, errOut = s.do(t.Context(), "", "receivers", "ls", "--json")
	require.Equal(t, 1, code)
	require.Contains(t, errOut, `{"error":"relay: answered 404`)
}

func TestTokenFromTheEnvironment(t *testing.T) {
	s := newShell(t, "--admin-token", "sesame")
	code, _, errOut := s.do(t.Context(), "", "receivers", "ls")
	require.Equal(t, 1, code)
	require.Contains(t, errOut, "give --token or $JETPULL_RELAY_TOKEN")
	t.Setenv(remote.RelayToken, "sesame")
	t.Setenv(remote.RelayURL, s.url)
	s.url = ""
	s.want(0, "receivers", "ls")
	for adminToken, warned := range map[string]bool{"": true, "sesame": false} { // the token of clients protects nothing
		var log buffer
		cmd := relaycmd.New()
		cmd.SetErr(&log)
		_, stop := listen(t, cmd, "--log-level", "warn", "--admin-token", adminToken)
		require.NoError(t, stop())
		require.Equal(t, warned, strings.Contains(log.String(), "JETPULL_RELAY_TOKEN is for the clients of a relay"), log.String())
	}
	require.Empty(t, relay.StrayVariables([]string{remote.RelayToken + "=x", remote.RelayURL + "=x"}, remote.RelayURL, remote.RelayToken))
}

// failedMessages makes n of them, and lets what is tried again pass.
func failedMessages(t *testing.T, s *shell, n int) (open func()) {
	var well atomic.Bool
	s.want(0, "receivers", "put", "ci", "--post-endpoint", newReceiver(t, func() int {
		if well.Load() {
			return 200
		}
		return 400
	}))
	var lines strings.Builder
	for i := range n {
		fmt.Fprintf(&lines, "{\"source_id\":\"s\",\"message_id\":\"%d\",\"receiver\":\"ci\",\"payload\":1}\n", i)
	}
	resp, err := http.Post(s.url+"/v1/messages:batch", "application/x-ndjson", strings.NewReader(lines.String()))
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, http.StatusOK, resp.StatusCode)
	require.Eventually(t, func() bool {
		return strings.Count(s.want(0, "failed", "ls", "--limit", "0", "--json"), "\n") == n
	}, 30*time.Second, 20*time.Millisecond)
	return func() { well.Store(true) }
}

func TestFailedAndRedrive(t *testing.T) {
	s := newShell(t)
	open := failedMessages(t, s, 12)
	require.Empty(t, s.want(0, "failed", "ls", "--until", "1h", "--json"))
	list := s.want(0, "failed", "ls", "--receiver", "ci", "--limit", "3")
	require.Equal(t, 5, strings.Count(list, "\n"), list)
	require.Contains(t, list, "ci")
	require.Equal(t, "12 messages\n", s.want(0, "redrive", "--all", "--dry-run"))
	require.Equal(t, "0 messages\n", s.want(0, "redrive", "--source", "other", "--dry-run"))
	var newest struct {
		ID      string
		Message string `json:"message_id"`
	}
	require.NoError(t, json.Unmarshal([]byte(s.want(0, "failed", "ls", "--limit", "1", "--json")), &newest))
	other := "0"
	if newest.Message == other {
		other = "1"
	}
	require.Regexp(t, `^skip [\w-]+: done, 1 of 1 message\n$`, s.want(0, "failed", "skip", newest.ID))
	open()
	require.Regexp(t, `^redrive [\w-]+: done, 11 of 11 messages\n$`, s.want(0, "redrive", "--receiver", "ci"))
	require.Eventually(t, func() bool { return strings.Contains(s.want(0, "status", "s", other), `"status": "DONE"`) }, 30*time.Second, 20*time.Millisecond)
	require.Empty(t, s.want(0, "failed", "ls", "--json"))
	code, _, errOut := s.do(t.Context(), "", "failed", "ls", "--receiver", "ci")
	require.Equal(t, 0, code)
	require.Equal(t, "nothing found\n", errOut)
	require.Regexp(t, `redrive +done +11 +11 `, s.want(0, "operations", "ls"))
	code, out, errOut := s.do(t.Context(), "", "redrive", newest.ID, newest.ID)
	require.Equal(t, 1, code)
	require.Regexp(t, `^redrive [\w-]+: done, 0 of 0 messages\n$`, out)
	require.Contains(t, errOut, "1 of 1 ID not found on the list of failed messages")
}

// An interrupt leaves a redrive to the relay and says how to go on.
func TestInterruptedRedrive(t *testing.T) {
	s := newShell(t)
	failedMessages(t, s, 40)
	// A proxy interrupts the command when it first asks how far the operation is.
	to, err := url.Parse(s.url)
	require.NoError(t, err)
	var asked context.CancelFunc
	proxy := httputil.NewSingleHostReverseProxy(to)
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			asked()
		}
		proxy.ServeHTTP(w, r)
	}))
	defer front.Close()
	interrupt := func(args ...string) (code int, out, errOut string) {
		ctx, cancel := context.WithCancel(t.Context())
		asked = cancel
		return (&shell{t: t, url: front.URL}).do(ctx, "", args...)
	}
	code, _, errOut := interrupt("redrive", "--all", "--rate", "2")
	require.Equal(t, cli.ExitInterrupted, code)
	require.Contains(t, errOut, "The redrive continues in the relay")
	_, rest, ok := strings.Cut(errOut, "jetpull relay operations cancel ")
	require.True(t, ok, errOut)
	id, _, _ := strings.Cut(rest, " ")
	require.Contains(t, errOut, "jetpull relay operations status --follow "+id+" ")
	var o struct {
		State string
		Done  int
	}
	require.NoError(t, json.Unmarshal([]byte(s.want(0, "operations", "cancel", id, "--json")), &o))
	require.Equal(t, "cancelled", o.State)
	require.Less(t, o.Done, 40)
	require.Contains(t, s.want(0, "operations", "status", id, "--follow"), "cancelled")

	require.Contains(t, s.want(0, "redrive", "--all", "--rate", "2", "--detach"), ": running, 0 of ")
}

func TestNoRelay(t *testing.T) {
	code, _, errOut := (&shell{t: t, url: "http://127.0.0.1:1"}).do(t.Context(), "", "status", "a", "b")
	require.Equal(t, cli.ExitError, code)
	require.Contains(t, errOut, "start one with jetpull relay, or give --url or $JETPULL_RELAY_URL")
}

// A receiver chooses its response, and a terminal obeys none of it.
func TestResponseWithControlCharacters(t *testing.T) {
	s := newShell(t)
	const hostile = "\u009b31m\u009d0;title\u009c\u202e\x7f"
	answers := func(code int, body string) string {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(code)
			_, _ = io.WriteString(w, body)
		}))
		t.Cleanup(server.Close)
		return server.URL
	}
	s.want(0, "receivers", "put", "json", "--post-endpoint", answers(200, `{"x":"`+hostile+`"}`))
	s.want(0, "receivers", "put", "text", "--post-endpoint", answers(200, hostile+"\x9b"))
	s.want(0, "receivers", "put", "fails", "--post-endpoint", answers(400, hostile))
	for _, args := range [][]string{
		{"send", "--source", "s", "--id", "1" + hostile, "--receiver", "json", "--wait", "20s", "1"},
		{"send", "--source", "s", "--id", "2", "--receiver", "json", "--wait", "20s", "--json", "1"},
		{"send", "--source", "s", "--id", "3", "--receiver", "text", "--wait", "20s", "1"},
		{"send", "--source", "s", "--id", "4", "--receiver", "fails", "--wait", "20s", "1"},
		{"send", "--source", "s", "--id", "4", "--receiver", "none" + hostile, "1"},
		{"status", "s", "1" + hostile},
		{"status", "s", "1" + hostile, "--json"},
		{"status", "s", "3"},
		{"status", "s", "4"},
		{"status", "s" + hostile, "1"},
		{"receivers", "show", hostile},
		{"failed", "ls"},
		{"failed", "ls", "--json"},
	} {
		_, out, errOut := s.do(t.Context(), "", args...)
		require.NotEmpty(t, out+errOut)
		require.True(t, utf8.ValidString(out+errOut), "%q", out+errOut)
		for _, r := range out + errOut {
			require.True(t, r == '\n' || unicode.IsPrint(r), "%q prints %q: %q", args, r, out+errOut)
		}
	}
	_, out, _ := s.do(t.Context(), "", "send", "--source", "s", "--id", "2", "--receiver", "json", "--wait", "20s", "--json", "1")
	var result struct{ Response struct{ X string } }
	require.NoError(t, json.Unmarshal([]byte(out), &result))
	require.Equal(t, hostile, result.Response.X, "what is escaped is the same JSON")
}
