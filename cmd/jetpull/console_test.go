package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/cmd/jetpull/internal/brokercmd"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/consolecmd"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/relaycmd"
	"github.com/jetpull/jetpull/feed"
	"github.com/jetpull/jetpull/internal/service/webhook"
	"github.com/jetpull/jetpull/test/servertest"
)

// page reads a page, as a browser that has signed in.
func page(t *testing.T, browser *http.Client, address string) (status int, text string) {
	t.Helper()
	answer, err := browser.Get(address)
	require.NoError(t, err)
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	return answer.StatusCode, string(body)
}

func newBrowser(t *testing.T) *http.Client {
	t.Helper()
	jar, err := cookiejar.New(nil)
	require.NoError(t, err)
	return &http.Client{Jar: jar}
}

func TestConsoleBesideASystem(t *testing.T) {
	for name, tt := range map[string]struct {
		command func() *cobra.Command
		page    string
		want    string
	}{
		"relay":  {relaycmd.New, "relay", "This list shows the receivers of the relay."},
		"broker": {brokercmd.New, "broker", "This list shows the channels of the broker"},
	} {
		t.Run(name, func(t *testing.T) {
			base, stop := listen(t, tt.command(), "--store-dir", filepath.Join(t.TempDir(), "store"), "--listen", "127.0.0.1:0", "--admin-token", "secret")
			browser := newBrowser(t)
			status, text := page(t, browser, base+"/console/"+tt.page)
			require.Equal(t, http.StatusUnauthorized, status)
			require.Contains(t, text, "Sign in")
			answer, err := browser.PostForm(base+"/console/login", url.Values{"token": {"wrong"}})
			require.NoError(t, err)
			require.NoError(t, answer.Body.Close())
			require.Equal(t, http.StatusForbidden, answer.StatusCode)
			answer, err = browser.PostForm(base+"/console/login", url.Values{"token": {"secret"}, "next": {tt.page}})
			require.NoError(t, err)
			text2, err := io.ReadAll(answer.Body)
			require.NoError(t, err)
			require.NoError(t, answer.Body.Close())
			require.Contains(t, string(text2), tt.want, "the system itself is the source")

			// An open page does not hold up the stop.
			stream, err := browser.Get(base + "/console/" + tt.page + "?live=1")
			require.NoError(t, err)
			defer stream.Body.Close()
			_, err = stream.Body.Read(make([]byte, 10))
			require.NoError(t, err)
			require.NoError(t, stop())

			base, stop = listen(t, tt.command(), "--store-dir", filepath.Join(t.TempDir(), "store"), "--listen", "127.0.0.1:0", "--console=false")
			status, _ = page(t, newBrowser(t), base+"/console/"+tt.page)
			require.Equal(t, http.StatusNotFound, status)
			require.NoError(t, stop())
		})
	}
}

// The console makes requests with the broker's token, of which it has no more than a hash here.
func TestNoConsoleWithAHashedToken(t *testing.T) {
	base, stop := listen(t, brokercmd.New(), "--store-dir", filepath.Join(t.TempDir(), "store"), "--listen", "127.0.0.1:0", "--admin-token",
		"sha256:"+strings.Repeat("0", 64))
	status, _ := page(t, newBrowser(t), base+"/console/broker")
	require.NotEqual(t, http.StatusOK, status)
	require.NoError(t, stop())
}

// A broker whose requests must be signed refuses those of the console, unless there is an admin token.
func TestNoConsoleBehindSignedRequests(t *testing.T) {
	t.Setenv("JETPULL_BROKER_GATEWAY_AUTH_HMAC_SHARED_SECRET", strings.Repeat("s", 32))
	for token, want := range map[string]int{"": http.StatusNotFound, "secret": http.StatusUnauthorized} {
		base, stop := listen(t, brokercmd.New(), "--store-dir", filepath.Join(t.TempDir(), "store"), "--listen", "127.0.0.1:0",
			"--gateway-auth-mode", "hmac", "--admin-token", token)
		for _, path := range []string{"/console/", "/console/broker", "/console/static/app.js"} {
			status, text := page(t, newBrowser(t), base+path)
			if token == "" {
				require.Contains(t, []int{http.StatusNotFound, http.StatusUnauthorized}, status, path)
				require.NotContains(t, text, "jetpull console", path)
			} else if path != "/console/static/app.js" {
				require.Equal(t, want, status, path)
				require.Contains(t, text, "Sign in", path)
			}
		}
		require.NoError(t, stop())
	}
}

func TestConsoleCommand(t *testing.T) {
	srv := servertest.RunServer(t)
	ctx, cancel := context.WithCancel(t.Context())
	out, in := io.Pipe()
	code := make(chan int, 1)
	go func() {
		args := []string{
			"console", "--nats", srv.URL(), "--listen", "127.0.0.1:0", "--console-token", "ada=secret", "--console-token", "lin=cGFk==",
			"--console-read-token", "reader", "--console-user-header", "X-Forwarded-User", "--http-trusted-proxies", "127.0.0.1",
		}
		code <- execute(ctx, args, strings.NewReader(""), in, io.Discard)
	}()
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	base, ok := strings.CutPrefix(strings.TrimSpace(line), "console: listening on ")
	require.True(t, ok, line)
	browser := newBrowser(t)
	answer, err := browser.PostForm(base+"login", url.Values{"token": {"reader"}, "next": {"consumers"}})
	require.NoError(t, err)
	text, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	require.Contains(t, string(text), "This list shows the consumers of all streams")
	require.Contains(t, string(text), "read-only")
	// The name of a user is that of the token, or what a trusted proxy states.
	for token, want := range map[string]string{"secret": "<span>ada</span>", "cGFk==": "<span>lin</span>"} {
		answer, err := browser.PostForm(base+"login", url.Values{"token": {token}, "next": {"consumers"}})
		require.NoError(t, err)
		text, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		require.Contains(t, string(text), want)
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, base+"consumers", nil)
	require.NoError(t, err)
	r.Header.Set("X-Forwarded-User", "grace")
	answer, err = browser.Do(r)
	require.NoError(t, err)
	text, err = io.ReadAll(answer.Body)
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	require.Contains(t, string(text), "<span>grace</span>")
	cancel()
	require.Zero(t, <-code)
}

// The console starts without NATS. Its pages state that it does not answer, and show it when it does. A request to a server that is away
// fails, and is not made later, whether NATS answered at the start or not.
func TestConsoleWithoutNATS(t *testing.T) {
	t.Parallel()
	for _, away := range []bool{true, false} {
		srv := servertest.RunServer(t)
		if away {
			srv.Stop()
		}
		ctx, cancel := context.WithCancel(t.Context())
		out, in := io.Pipe()
		code := make(chan int, 1)
		go func() {
			code <- execute(ctx, []string{"console", "--nats", srv.URL(), "--listen", "127.0.0.1:0"}, strings.NewReader(""), in, io.Discard)
		}()
		line, err := bufio.NewReader(out).ReadString('\n')
		require.NoError(t, err)
		base := strings.TrimPrefix(strings.TrimSpace(line), "console: listening on ")
		shows := func(path, want string) {
			t.Helper()
			require.Eventually(t, func() bool {
				_, text := page(t, http.DefaultClient, base+path)
				return strings.Contains(text, want)
			}, time.Minute, 50*time.Millisecond, "%s: %s", path, want)
		}
		if away {
			for _, path := range []string{"consumers", "streams"} {
				shows(path, "NATS does not answer, so there is nothing to show here yet: <bdi>there is no connection to a NATS server now")
			}
			srv.Start()
		}
		shows("consumers", "This list shows the consumers of all streams")
		shows("messages?stream=ORDERS", "There is no stream")
		srv.Stop()
		shows("messages?stream=ORDERS", "NATS does not answer for stream ORDERS: there is no connection to a NATS server now")
		cancel()
		require.Zero(t, <-code)
	}
}

// The console starts without the database of the feed. Its pages state that it does not answer, and show it when it does. A DSN at which no
// database can answer is an error at once.
func TestConsoleWithoutDatabase(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	there, away := filepath.Join(dir, "there"), filepath.Join(dir, "away")
	require.NoError(t, os.Mkdir(there, 0o700))
	store, err := feed.Open(t.Context(), "sqlite:"+filepath.Join(there, "feed.db"))
	require.NoError(t, err)
	_, err = store.CreatePartition(t.Context(), feed.Partition{ID: "applications"}, feed.Item{ID: "first"})
	require.NoError(t, err)
	require.NoError(t, store.Close())
	ctx, cancel := context.WithCancel(t.Context())
	out, in := io.Pipe()
	code := make(chan int, 1)
	go func() {
		code <- execute(ctx, []string{"console", "--feed", "sqlite:" + filepath.Join(away, "feed.db"), "--listen", "127.0.0.1:0"}, strings.NewReader(""),
			in, io.Discard)
	}()
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	base := strings.TrimPrefix(strings.TrimSpace(line), "console: listening on ")
	for _, path := range []string{"overview", "feed", "partition?id=applications", "item?partition=applications&id=first"} {
		_, text := page(t, http.DefaultClient, base+path)
		require.Contains(t, text, "folder "+away+" is not there", path)
		require.NotContains(t, text, "Not found", path)
	}
	require.NoError(t, os.Rename(there, away))
	for path, want := range map[string]string{
		"overview": "1 item is ready", "feed": "applications", "partition?id=applications": "first",
		"item?partition=applications&id=first": "Available",
	} {
		require.Eventually(t, func() bool {
			_, text := page(t, http.DefaultClient, base+path)
			return strings.Contains(text, want)
		}, time.Minute, 50*time.Millisecond, "%s: %s", path, want)
	}
	cancel()
	require.Zero(t, <-code)

	require.NotZero(t, execute(t.Context(), []string{"console", "--feed", "mysql://db", "--listen", "127.0.0.1:0"}, strings.NewReader(""), io.Discard,
		io.Discard))
}

// The environment's tokens have the names that the systems' own commands read.
func TestConsoleTokensOfTheEnvironment(t *testing.T) {
	t.Setenv("JETPULL_BROKER_ADMIN_TOKEN", "for the broker")
	t.Setenv("JETPULL_RELAY_TOKEN", "for the relay")
	system := func() (string, <-chan string) {
		given := make(chan string, 1)
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			select {
			case given <- r.Header.Get("Authorization"):
			default:
			}
			w.WriteHeader(http.StatusServiceUnavailable)
		}))
		t.Cleanup(srv.Close)
		return srv.URL, given
	}
	broker, brokerToken := system()
	relay, relayToken := system()
	ctx, cancel := context.WithCancel(t.Context())
	out, in := io.Pipe()
	code := make(chan int, 1)
	go func() {
		code <- execute(ctx, []string{"console", "--listen", "127.0.0.1:0", "--broker", broker, "--relay", relay}, strings.NewReader(""), in, io.Discard)
	}()
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	base := strings.TrimPrefix(strings.TrimSpace(line), "console: listening on ")
	page(t, http.DefaultClient, base+"broker")
	page(t, http.DefaultClient, base+"relay")
	require.Equal(t, "Bearer for the broker", <-brokerToken)
	require.Equal(t, "Bearer for the relay", <-relayToken)
	cancel()
	require.Zero(t, <-code)
}

func TestConsoleCommandRefusesByName(t *testing.T) {
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"--listen", "0.0.0.0:0"}, "--console-token"},
		{[]string{"--listen", "nowhere"}, "--listen"},
		{[]string{"--console-read-token", "x"}, "--console-read-token needs --console-token"},
		{[]string{"--console-user-header", "X-User"}, "needs --http-trusted-proxies"},
		{[]string{"--relay", "nowhere"}, "--relay"},
		{[]string{"--broker", "nowhere"}, "--broker"},
		{[]string{"--feed", "nowhere"}, "--feed"},
	} {
		result := jetpullRun(t, append([]string{"console"}, tt.args...)...)
		require.NotZero(t, result.code, tt.args)
		require.Contains(t, result.err, tt.want)
	}
}

// Alerts are refused at the start without a secret or a URL.
func TestConsoleAlertsThatCannotBeSent(t *testing.T) {
	for _, tt := range []struct{ url, secret, want string }{
		{"http://127.0.0.1:1", "", "--console-alert-url and $JETPULL_CONSOLE_ALERT_SECRET: signing secret is empty"},
		{"http://127.0.0.1:1", "aGlkZGVu", "has 6 bytes: give 24 to 64"},
		{"nowhere", strings.Repeat("aGlkZGVu", 4), "is not absolute"},
		{"", strings.Repeat("aGlkZGVu", 4), `URL "" is not absolute`},
	} {
		t.Setenv("JETPULL_CONSOLE_ALERT_SECRET", tt.secret)
		result := jetpullRun(t, "console", "--console-alert-url", tt.url)
		require.Equal(t, 2, result.code, tt)
		require.Contains(t, result.err, tt.want)
		require.NotContains(t, result.err, "aGlkZGVu")
	}
}

// The command sends alerts, with the secret of the environment: the relay is away, which is red after 10 s.
func TestConsoleAlerts(t *testing.T) {
	if testing.Short() {
		t.Skip("the relay is away for 10 s first")
	}
	secret := "whsec_" + base64.StdEncoding.EncodeToString(make([]byte, 24))
	t.Setenv("JETPULL_CONSOLE_ALERT_SECRET", secret)
	type request struct {
		header http.Header
		body   []byte
	}
	alerts := make(chan request, 10)
	target := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body) // what is missing fails the test
		alerts <- request{r.Header, body}
	}))
	defer target.Close()
	away := httptest.NewServer(http.NotFoundHandler())
	away.Close()
	ctx, cancel := context.WithCancel(t.Context())
	var log bytes.Buffer
	code := make(chan int, 1)
	go func() {
		args := []string{"console", "--listen", "127.0.0.1:0", "--relay", away.URL, "--console-alert-url", target.URL, "--http-public-url", "https://example.com"}
		code <- execute(ctx, args, strings.NewReader(""), io.Discard, &log)
	}()
	got := <-alerts
	var event map[string]string
	require.NoError(t, json.Unmarshal(got.body, &event))
	require.Equal(t, []string{"console.red", "source", "relay", "https://example.com/overview"},
		[]string{event["type"], event["kind"], event["object"], event["url"]})
	signer, err := webhook.NewSigner(secret)
	require.NoError(t, err)
	seconds, err := strconv.ParseInt(got.header.Get(webhook.HeaderTimestamp), 10, 64)
	require.NoError(t, err)
	want := http.Header{}
	signer.Sign(want, got.header.Get(webhook.HeaderID), time.Unix(seconds, 0), got.body)
	require.Equal(t, want.Get(webhook.HeaderSignature), got.header.Get(webhook.HeaderSignature))
	cancel()
	require.Zero(t, <-code)
	require.NotContains(t, log.String(), strings.TrimPrefix(secret, "whsec_"))
}

// Nothing of a list of tokens becomes a token that nobody meant.
func TestConsoleTokens(t *testing.T) {
	const padded = "c2VjcmV0c2VjcmV0c2VjcmV0cw=="
	for _, tt := range []struct {
		variable string
		args     []string
		want     string
	}{
		{"ada=hidden lin=", nil, "$JETPULL_CONSOLE_TOKEN: number 2 of 2 ends with ="},
		{"alice=", nil, "$JETPULL_CONSOLE_TOKEN: number 1 of 1 ends with ="},
		{"alice==", nil, "ends with ="},
		{"ada=hidden horse", nil, "token 2 of 2 has no name"},
		{" ", nil, "$JETPULL_CONSOLE_TOKEN: token 1 of 1 is empty"},
		{"", []string{"--console-token", "alice="}, "--console-token: number 1 of 1 ends with ="},
		{"", []string{"--console-token", "hidden", "--console-token", "horse"}, "--console-token: token 1 of 2 has no name"},
		{"ada=hidden", []string{"--console-read-token", "lin="}, "--console-read-token: number 1 of 1"},
	} {
		t.Setenv("JETPULL_CONSOLE_TOKEN", tt.variable)
		result := jetpullRun(t, append([]string{"console"}, tt.args...)...)
		require.Equal(t, 2, result.code, tt)
		require.Contains(t, result.err, tt.want)
		require.NotContains(t, result.err, "hidden")
		require.NotContains(t, result.err, "horse")
	}
	srv := servertest.RunServer(t)
	for _, tt := range []struct {
		variable string
		args     []string
		right    string
		wrong    []string
	}{
		{"correct horse battery", nil, "correct horse battery", []string{"horse", "correct", ""}},
		{"secret\n", []string{"--console-token", ""}, "secret", []string{""}},
		{padded, nil, padded, []string{padded[:26]}},
		{"ada=one lin=two", nil, "two", []string{"ada=one lin=two", "lin=two"}},
	} {
		t.Setenv("JETPULL_CONSOLE_TOKEN", tt.variable)
		ctx, cancel := context.WithCancel(t.Context())
		out, in := io.Pipe()
		code := make(chan int, 1)
		go func() {
			args := append([]string{"console", "--nats", srv.URL(), "--listen", "127.0.0.1:0"}, tt.args...)
			code <- execute(ctx, args, strings.NewReader(""), in, io.Discard)
		}()
		line, err := bufio.NewReader(out).ReadString('\n')
		require.NoError(t, err)
		base := strings.TrimPrefix(strings.TrimSpace(line), "console: listening on ")
		metrics := func(token string) int {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, base+"metrics", nil)
			require.NoError(t, err)
			r.Header.Set("Authorization", "Bearer "+token)
			answer, err := http.DefaultClient.Do(r)
			require.NoError(t, err)
			require.NoError(t, answer.Body.Close())
			return answer.StatusCode
		}
		require.Equal(t, http.StatusOK, metrics(tt.right), tt.variable)
		for _, wrong := range tt.wrong {
			require.Equal(t, http.StatusUnauthorized, metrics(wrong), "%q: %q", tt.variable, wrong)
		}
		cancel()
		require.Zero(t, <-code)
	}
}

// The feed has no token of its own, so its console is open on loopback only, or with --console-token.
func TestConsoleOfAFeed(t *testing.T) {
	store, err := feed.Open(t.Context(), "sqlite:"+filepath.Join(t.TempDir(), "feed.db"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	watcher := feed.NewWatcher(store, feed.ProcessorFunc(func(context.Context, feed.Item) (feed.Response, error) {
		return feed.Response{Done: true},
			nil
	}))
	for _, tt := range []struct {
		address, token string
		want           int
	}{
		{"127.0.0.1:9090", "", http.StatusOK},
		{"127.0.0.1:9090", "secret", http.StatusUnauthorized},
		{"0.0.0.0:9090", "", http.StatusUnauthorized},
	} {
		c, err := consolecmd.OfFeed(store, watcher, tt.address, tt.token, slog.New(slog.DiscardHandler))
		require.NoError(t, err)
		w := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodGet, "/feed", nil)
		r.Host = "localhost"
		c.ServeHTTP(w, r)
		require.Equal(t, tt.want, w.Code, tt)
		c.Close()
	}
}
