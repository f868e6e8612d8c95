package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/cmd/jetpull/internal/brokercmd"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/relaycmd"
	"github.com/jetpull/jetpull/internal/natstest"
	"github.com/jetpull/jetpull/internal/service/webhook"
)

// receiverLanguages are those of docs/receivers.md: the name of a fenced block, its file, what runs it, and Debian's package for that.
var receiverLanguages = []struct{ fence, file, tool, debian string }{
	{"go", "receiver.go", "go", "golang"},
	{"python", "receiver.py", "python3", "python3"},
	{"js", "receiver.mjs", "node", "nodejs"},
}

// receiverProgram is one program of docs/receivers.md that runs.
type receiverProgram struct {
	t   *testing.T
	url string
	out *buffer
}

// startReceiver runs the program of a language word for word, until the test ends.
func startReceiver(t *testing.T, argv []string, secrets ...string) *receiverProgram {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), "LISTEN=127.0.0.1:0", "WEBHOOK_SECRETS="+strings.Join(secrets, " "))
	cmd.Stderr = t.Output()
	natstest.EndWithParent(cmd, syscall.SIGKILL)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	p := &receiverProgram{t: t, out: &buffer{}}
	lines := bufio.NewReader(stdout)
	line, err := lines.ReadString('\n')
	copied := make(chan struct{})
	go func() {
		defer close(copied)
		_, _ = io.Copy(p.out, lines)
	}()
	t.Cleanup(func() {
		cancel()
		<-copied
		_ = cmd.Wait()
	})
	require.NoError(t, err, "the program ended")
	address, ok := strings.CutPrefix(strings.TrimSpace(line), "listening on ")
	require.True(t, ok, line)
	p.url = "http://" + address
	return p
}

// post sends one request as it is and returns the answer.
func (p *receiverProgram) post(header http.Header, body []byte) (status int, answer string) {
	p.t.Helper()
	req, err := http.NewRequestWithContext(p.t.Context(), http.MethodPost, p.url+"/hook", bytes.NewReader(body))
	require.NoError(p.t, err)
	req.Header = header
	resp, err := http.DefaultClient.Do(req)
	require.NoError(p.t, err)
	defer func() { _ = resp.Body.Close() }()
	got, err := io.ReadAll(resp.Body)
	require.NoError(p.t, err)
	return resp.StatusCode, string(got)
}

// handled counts how often the program has handled an ID.
func (p *receiverProgram) handled(id string) int {
	return strings.Count(p.out.String(), "handled "+id+":")
}

func signed(t *testing.T, secrets, id string, at time.Time, body []byte) http.Header {
	t.Helper()
	signer, err := webhook.NewSigner(secrets)
	require.NoError(t, err)
	h := http.Header{}
	signer.Sign(h, id, at, body)
	return h
}

// Each program of docs/receivers.md takes what the project's own code signs, and refuses what somebody else sends.
func TestReceiversOfTheGuide(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/receivers.md")
	require.NoError(t, err)
	brokerURL, stopBroker := listen(t, brokercmd.New())
	relayURL, stopRelay := listen(t, relaycmd.New())
	for _, l := range receiverLanguages {
		blocks := regexp.MustCompile("(?s)```"+l.fence+"\n(.*?)```").FindAllSubmatch(page, -1)
		require.Len(t, blocks, 1, l.fence)
		t.Run(l.fence, func(t *testing.T) {
			needTool(t, l.tool, l.debian)
			argv := []string{l.tool, filepath.Join(t.TempDir(), l.file)}
			require.NoError(t, os.WriteFile(argv[1], blocks[0][1], 0o600))
			if l.fence == "go" {
				program := filepath.Join(t.TempDir(), "receiver")
				build := exec.Command("go", "build", "-o", program, argv[1])
				build.Env = append(os.Environ(), "GOWORK=off")
				out, err := build.CombinedOutput()
				require.NoError(t, err, string(out))
				argv = []string{program}
			}
			receiverVerifies(t, argv)
			receiverHandlesOnce(t, argv)
			receiverOfBrokerAndRelay(t, argv, brokerURL, relayURL)
		})
	}
	require.NoError(t, stopBroker())
	require.NoError(t, stopRelay())
}

// receiverVerifies holds a program to the verdicts about requests that are right and wrong.
func receiverVerifies(t *testing.T, argv []string) {
	first, second, other := webhook.NewSecret(), webhook.NewSecret(), webhook.NewSecret()
	body := []byte(`{"amount": 12, "note": "für Zoë"}`)
	now := time.Now()
	p := startReceiver(t, argv, first, second)
	set := func(name string, values ...string) func(http.Header) {
		return func(h http.Header) { h[http.CanonicalHeaderKey(name)] = values }
	}
	cut := func(h http.Header) { h.Set(webhook.HeaderSignature, h.Get(webhook.HeaderSignature)[:20]) }
	version := func(h http.Header) {
		h.Set(webhook.HeaderSignature, strings.Replace(h.Get(webhook.HeaderSignature), "v1,", "v2,", 1))
	}
	for i, c := range []struct {
		name    string
		secrets string
		at      time.Time
		sent    []byte // nil: what was signed
		change  func(http.Header)
		status  int
	}{
		{"signed", first, now, nil, nil, 200},
		{"signed with the second of the receiver's secrets", second, now, nil, nil, 200},
		{"signed with two secrets, of which the receiver knows the last", other + " " + second, now, nil, nil, 200},
		{"signed four minutes ago", first, now.Add(-4 * time.Minute), nil, nil, 200},
		{"signed by a clock that is four minutes ahead", first, now.Add(4 * time.Minute), nil, nil, 200},
		{"a version that nobody knows, before the right one", first, now, nil, func(h http.Header) {
			h.Set(webhook.HeaderSignature, "v9,AAAA "+h.Get(webhook.HeaderSignature))
		}, 200},
		{"signed, and not JSON", first, now, []byte{}, nil, 401},
		{"another secret", other, now, nil, nil, 401},
		{"another body", first, now, []byte(`{"amount": 13, "note": "für Zoë"}`), nil, 401},
		{"the body written again by a JSON library", first, now, []byte(`{"amount":12,"note":"für Zoë"}`), nil, 401},
		{"signed six minutes ago", first, now.Add(-6 * time.Minute), nil, nil, 401},
		{"signed by a clock that is six minutes ahead", first, now.Add(6 * time.Minute), nil, nil, 401},
		{"another time", first, now, nil, set(webhook.HeaderTimestamp, fmt.Sprint(now.Unix()+1)), 401},
		{"no time", first, now, nil, set(webhook.HeaderTimestamp), 401},
		{"a time that is no number", first, now, nil, set(webhook.HeaderTimestamp, "now"), 401},
		{"a time that no clock has", first, now, nil, set(webhook.HeaderTimestamp, strings.Repeat("9", 400)), 401},
		{"digits of another script", first, now, nil, set(webhook.HeaderTimestamp, "१७०००००००००"), 401},
		{"another ID", first, now, nil, set(webhook.HeaderID, "another"), 401},
		{"no ID", first, now, nil, set(webhook.HeaderID), 401},
		{"no signature", first, now, nil, set(webhook.HeaderSignature), 401},
		{"an empty signature", first, now, nil, set(webhook.HeaderSignature, ""), 401},
		{"a version without a signature", first, now, nil, set(webhook.HeaderSignature, "v1,"), 401},
		{"a signature that is not base64", first, now, nil, set(webhook.HeaderSignature, "v1,%%%"), 401},
		{"a signature that is not ASCII", first, now, nil, set(webhook.HeaderSignature, "v1,\xff\xfe é"), 401},
		{"the start of a signature", first, now, nil, cut, 401},
		{"the signature as another version", first, now, nil, version, 401},
	} {
		id := fmt.Sprintf("verify-%d", i)
		h := signed(t, c.secrets, id, c.at, body)
		if c.change != nil {
			c.change(h)
		}
		sent := body
		if c.sent != nil {
			sent = c.sent
		}
		status, answer := p.post(h, sent)
		require.Equal(t, c.status, status, "%s: %s", c.name, answer)
		if c.status == http.StatusOK {
			require.Eventually(t, func() bool { return p.handled(id) == 1 }, 30*time.Second, time.Millisecond, c.name)
		}
	}
	require.Equal(t, 6, strings.Count(p.out.String(), "handled "), p.out.String())
	for _, raw := range [][]byte{{}, {0xff, 0, 0xfe}} {
		status, answer := p.post(signed(t, first, "raw", now, raw), raw)
		require.Equal(t, http.StatusBadRequest, status, "the signature over %q is right, and the body is not JSON: %s", raw, answer)
	}
	large := bytes.Repeat([]byte(" "), 1<<20+1)
	status, answer := p.post(signed(t, first, "large", now, large), large)
	require.Equal(t, http.StatusRequestEntityTooLarge, status, answer)
}

// receiverHandlesOnce sends requests with one ID, in turn and at once.
func receiverHandlesOnce(t *testing.T, argv []string) {
	secret, body := webhook.NewSecret(), []byte(`{"n":1}`)
	p := startReceiver(t, argv, secret)
	status, _ := p.post(signed(t, secret, "again", time.Now(), []byte("{")), []byte("{"))
	require.Equal(t, http.StatusBadRequest, status)
	status, first := p.post(signed(t, secret, "again", time.Now(), body), body)
	require.Equal(t, http.StatusOK, status, "what was refused can be tried again")
	for range 3 {
		status, answer := p.post(signed(t, secret, "again", time.Now().Add(-time.Minute), body), body)
		require.Equal(t, http.StatusOK, status)
		require.JSONEq(t, first, answer, "a duplicate gets the first answer")
	}
	var all sync.WaitGroup
	statuses := make([]int, 16)
	for i := range statuses {
		all.Go(func() { statuses[i], _ = p.post(signed(t, secret, "at-once", time.Now(), body), body) })
	}
	all.Wait()
	require.Contains(t, statuses, http.StatusOK)
	for _, status := range statuses {
		require.Contains(t, []int{http.StatusOK, http.StatusServiceUnavailable}, status)
	}
	status, _ = p.post(signed(t, secret, "last", time.Now(), body), body)
	require.Equal(t, http.StatusOK, status)
	require.Eventually(t, func() bool { return p.handled("last") == 1 }, 30*time.Second, time.Millisecond)
	require.Equal(t, 1, p.handled("again"), p.out.String())
	require.Equal(t, 1, p.handled("at-once"), p.out.String())
}

// receiverOfBrokerAndRelay has a broker and a relay deliver to a program.
func receiverOfBrokerAndRelay(t *testing.T, argv []string, brokerURL, relayURL string) {
	secret := webhook.NewSecret()
	p := startReceiver(t, argv, secret)
	name := filepath.Base(argv[len(argv)-1])
	send := func(method, target, contentType, body string, header ...string) string {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, target, strings.NewReader(body))
		require.NoError(t, err)
		req.Header.Set("Content-Type", contentType)
		for i := 0; i < len(header); i += 2 {
			req.Header.Set(header[i], header[i+1])
		}
		resp, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		defer func() { _ = resp.Body.Close() }()
		answer, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.Less(t, resp.StatusCode, 300, string(answer))
		return string(answer)
	}
	const form = "application/x-www-form-urlencoded"
	channel := brokerURL + "/channel/" + name
	send(http.MethodPut, brokerURL+"/producer/"+name, form, "token=producer-secret")
	send(http.MethodPut, channel, form, "token=channel-secret")
	send(http.MethodPut, channel+"/consumer/pushed", form, url.Values{
		"token": {"consumer-secret"}, "type": {"push"}, "callbackUrl": {p.url}, "signingSecret": {webhook.NewSecret() + " " + secret},
	}.Encode())
	send(http.MethodPost, channel+"/broadcast", "application/json", `{"from":"broker"}`,
		"X-Broker-Channel-Token", "channel-secret", "X-Broker-Producer-ID", name, "X-Broker-Producer-Token", "producer-secret")
	require.Eventually(t, func() bool { return strings.Contains(p.out.String(), `: {"from":"broker"}`) }, 30*time.Second, time.Millisecond)

	send(http.MethodPut, relayURL+"/v1/receivers/"+name, "application/json", fmt.Sprintf(`{"post_endpoint":%q,"secrets":[%q]}`, p.url, secret))
	answer := send(http.MethodPost, relayURL+"/v1/messages?wait=30s", "application/json",
		fmt.Sprintf(`{"source_id":"a source","message_id":"%s/1","receiver":%[1]q,"payload":{"from":"relay"}}`, name))
	require.Contains(t, answer, `"status":"DONE"`)
	require.Contains(t, answer, `"response":{"ok":`)
	// Its line may come after its answer.
	require.Eventually(t, func() bool { return p.handled("a%20source/"+name+"%2F1") == 1 }, 30*time.Second, time.Millisecond, p.out.String())
}
