package security

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/internal/natstest"
)

// adminToken is that of both systems.
const adminToken = "admin-token-of-the-test"

// command builds jetpull once.
var command = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "jetpull-security")
	if err != nil {
		return "", err
	}
	program := filepath.Join(dir, "jetpull")
	out, err := exec.Command("go", "build", "-o", program, "github.com/jetpull/jetpull/cmd/jetpull").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build jetpull: %w: %s", err, out)
	}
	return program, nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if program, err := command(); err == nil {
		_ = os.RemoveAll(filepath.Dir(program))
	}
	os.Exit(code)
}

// system is a broker or a relay that runs.
type system struct {
	name, url string
	client    *http.Client
}

// start runs a system of the command until the test ends.
func start(t *testing.T, name string, args ...string) *system {
	t.Helper()
	return run(t, name, append([]string{"--store-dir", t.TempDir(), "--log-level", "error"}, args...)...)
}

// interruptible is a run of the command that is interrupted when ctx ends, and killed if the tests are killed.
func interruptible(ctx context.Context, t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	program, err := command()
	require.NoError(t, err)
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	natstest.EndWithParent(cmd, syscall.SIGKILL)
	return cmd
}

// run runs a command that listens until the test ends.
func run(t *testing.T, name string, args ...string) *system {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cmd := interruptible(ctx, t, append([]string{name, "--listen", "127.0.0.1:0"}, args...)...)
	var log bytes.Buffer
	cmd.Stderr = &log
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	lines := bufio.NewReader(stdout)
	line, err := lines.ReadString('\n')
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		_, _ = io.Copy(io.Discard, lines)
	}()
	t.Cleanup(func() {
		cancel()
		<-drained
		_ = cmd.Wait()
		require.NotContains(t, log.String(), "panic", "of the %s", name)
		if t.Failed() {
			t.Logf("log of the %s: %s", name, log.String())
		}
	})
	require.NoError(t, err, "the %s ended", name)
	at, ok := strings.CutPrefix(strings.TrimSpace(line), name+": listening on ")
	require.True(t, ok, line)
	return &system{name: name, url: at, client: &http.Client{
		Timeout:       time.Minute,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// answer is what a probe got.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// ask sends one request. The header Host sets the host.
func (s *system) ask(t *testing.T, method, path string, header http.Header, body string) answer {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, s.url+path, strings.NewReader(body))
	require.NoError(t, err, path)
	req.Header = header.Clone()
	if req.Header == nil {
		req.Header = http.Header{}
	}
	req.Host = req.Header.Get("Host")
	resp, err := s.client.Do(req)
	require.NoError(t, err, "%s %s", method, path)
	defer func() { _ = resp.Body.Close() }()
	got, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	require.NoError(t, err, "%s %s", method, path)
	return answer{resp.StatusCode, resp.Header, got}
}

// must sends a request of an administrator that succeeds.
func (s *system) must(t *testing.T, method, path, contentType, body string) answer {
	t.Helper()
	a := s.ask(t, method, path, http.Header{"Content-Type": {contentType}, "Authorization": {"Bearer " + adminToken}}, body)
	require.Less(t, a.status, 300, "%s %s: %s", method, path, a.body)
	return a
}

// alive fails where the system does not answer everybody any more.
func (s *system) alive(t *testing.T) {
	t.Helper()
	require.Equal(t, http.StatusOK, s.ask(t, http.MethodGet, "/healthz", nil, "").status)
}

// operation is one route of an OpenAPI document.
type operation struct {
	method, path string
	bodyType     string // of its first body; empty: it has none
}

func (o operation) String() string { return o.method + " " + o.path }

// at is the path with values for its parameters, which are written as they are.
func (o operation) at(values map[string]string) string {
	path := o.path
	for name, value := range values {
		path = strings.ReplaceAll(path, "{"+name+"}", value)
	}
	return path
}

// parameters are the names in the path.
func (o operation) parameters() (names []string) {
	for part := range strings.SplitSeq(o.path, "{") {
		if name, _, ok := strings.Cut(part, "}"); ok {
			names = append(names, name)
		}
	}
	return names
}

// operations reads the document that the system serves.
func (s *system) operations(t *testing.T) (all []operation) {
	t.Helper()
	var document struct {
		Paths map[string]map[string]json.RawMessage
	}
	a := s.ask(t, http.MethodGet, "/openapi.json", nil, "")
	require.NoError(t, json.Unmarshal(a.body, &document), "%d %s", a.status, a.body)
	for path, methods := range document.Paths {
		for method, raw := range methods {
			if !slices.Contains([]string{"get", "put", "post", "delete", "patch", "head", "options"}, method) {
				continue
			}
			var op struct {
				RequestBody struct{ Content map[string]json.RawMessage }
			}
			require.NoError(t, json.Unmarshal(raw, &op), "%s %s", method, path)
			o := operation{method: strings.ToUpper(method), path: path}
			for contentType := range op.RequestBody.Content {
				o.bodyType = contentType
			}
			all = append(all, o)
		}
	}
	slices.SortFunc(all, func(a, b operation) int { return strings.Compare(a.String(), b.String()) })
	require.NotEmpty(t, all)
	return all
}

// tokens are what an attacker may have got hold of, by role. A role's tokens are the headers of its requests.
type tokens map[string]http.Header

func bearer(token string) http.Header { return http.Header{"Authorization": {"Bearer " + token}} }

// fixture is a system with something in it, and tokens for it.
type fixture struct {
	*system
	tokens tokens
	// values are the names of what is there, for the parameters of paths.
	values map[string]string
}

const formType = "application/x-www-form-urlencoded"

// manyLogins lets probes show any number of wrong tokens.
var manyLogins = []string{"--admin-token", adminToken, "--admin-max-failed-logins-per-minute", "0"}

// newBroker is a broker with two channels. The tokens with "other" are for the second.
func newBroker(t *testing.T, args ...string) *fixture {
	t.Helper()
	f := &fixture{system: start(t, "broker", slices.Concat(manyLogins, args)...), tokens: tokens{}, values: map[string]string{
		"producer": "shop", "channel": "orders", "consumer": "warehouse", "message": "m-1", "access": "read", "replay": "none", "stream": "none",
		"job": "000000000000a000002g",
	}}
	f.must(t, http.MethodPut, "/producer/shop", formType, "token=producer-secret")
	for _, channel := range []string{"orders", "other"} {
		f.must(t, http.MethodPut, "/channel/"+channel, formType, "token=channel-secret")
		f.must(t, http.MethodPut, "/channel/"+channel+"/consumer/warehouse", formType, url.Values{
			"token": {"consumer-secret"}, "type": {"pull"}, "callbackUrl": {"http://127.0.0.1:1/hook"},
		}.Encode())
		for _, role := range []string{"read", "publish", "manage"} {
			a := f.must(t, http.MethodPut, "/channel/"+channel+"/access/"+role, formType, "role="+role)
			var made struct{ Token string }
			require.NoError(t, json.Unmarshal(a.body, &made), string(a.body))
			require.NotEmpty(t, made.Token)
			f.tokens[strings.TrimPrefix(channel+" "+role, "orders ")] = bearer(made.Token)
		}
	}
	a := f.ask(t, http.MethodPost, "/channel/orders/broadcast", http.Header{
		"X-Broker-Channel-Token": {"channel-secret"}, "X-Broker-Producer-Id": {"shop"}, "X-Broker-Producer-Token": {"producer-secret"},
		"X-Broker-Message-Id": {"m-1"},
	}, "secret payload")
	require.Equal(t, http.StatusCreated, a.status, string(a.body))
	return f.withWrong()
}

// newRelay is a relay with two senders. The token of "other" is for sources below other.
func newRelay(t *testing.T, args ...string) *fixture {
	t.Helper()
	f := &fixture{system: start(t, "relay", slices.Concat(manyLogins, args)...), tokens: tokens{}, values: map[string]string{
		"name": "none", "source": "shop", "id": "m-1", "stream": "none",
	}}
	f.must(t, http.MethodPut, "/v1/receivers/r", "application/json",
		`{"post_endpoint":"http://127.0.0.1:1/hook","secrets":["whsec_YWJjZGVmZ2hpamtsbW5vcHFyc3R1dnd4"],"paused":true}`)
	for sender, source := range map[string]string{"sender": "shop", "other": "other"} {
		f.must(t, http.MethodPut, "/v1/senders/"+sender, "application/json",
			fmt.Sprintf(`{"callback_endpoint":"none","token":"token-of-%s","sources":[%q]}`, sender, source))
		f.tokens[sender] = bearer("token-of-" + sender)
	}
	f.must(t, http.MethodPost, "/v1/messages", "application/json", `{"source_id":"shop","message_id":"m-1","receiver":"r","payload":"secret payload"}`)
	return f.withWrong()
}

// withWrong adds the tokens that nobody has.
func (f *fixture) withWrong() *fixture {
	f.tokens["none"] = http.Header{}
	f.tokens["wrong"] = bearer("wrong")
	f.tokens["empty"] = bearer("")
	f.tokens["the start of the admin token"] = bearer(adminToken[:len(adminToken)-1])
	f.tokens["the admin token and more"] = bearer(adminToken + "x")
	f.tokens["basic"] = http.Header{"Authorization": {"Basic " + adminToken}}
	return f
}

// roles are those of the tokens, in order.
func (t tokens) roles() []string { return slices.Sorted(maps.Keys(t)) }
