package httpapi_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/broker"
	"github.com/jetpull/jetpull/broker/client"
	"github.com/jetpull/jetpull/broker/internal/signature"
)

func TestGateway(t *testing.T) {
	s := newSite(t, func(c *broker.Config) {
		c.Gateway.Mode, c.Gateway.Secret = "hmac", base64.StdEncoding.EncodeToString([]byte("key"))
	})
	ask := func(signature, body string) (int, string) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.base()+"/channel/ch/broadcast", strings.NewReader(body))
		require.NoError(t, err)
		for k, v := range producer {
			req.Header.Set(k, v)
		}
		if signature != "" {
			req.Header.Set("X-Broker-Signature", signature)
		}
		resp, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		defer func() { _ = resp.Body.Close() }()
		b, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		return resp.StatusCode, string(b)
	}
	sign := func(at time.Time, key, body string) string {
		mac := hmac.New(sha256.New, []byte(key))
		_, _ = fmt.Fprintf(mac, "%d.%s", at.Unix(), body)
		return fmt.Sprintf("t=%d,v1=%s", at.Unix(), hex.EncodeToString(mac.Sum(nil)))
	}
	now := time.Now()
	for _, tt := range []struct {
		signature string
		status    int
		text      string
	}{
		{"", 401, "missing X-Broker-Signature header"},
		{"t=1", 401, "malformed X-Broker-Signature header"},
		{"t=x,v1=00", 401, "malformed X-Broker-Signature header"},
		{"v1=00,v1=00", 401, "malformed X-Broker-Signature header"},
		{"t=1,v1=00,v1=01", 401, "malformed X-Broker-Signature header"},
		{sign(now.Add(-6*time.Minute), "key", "x"), 403, "request timestamp outside tolerance window"},
		{sign(now.Add(6*time.Minute), "key", "x"), 403, "request timestamp outside tolerance window"},
		{sign(now, "other", "x"), 403, "invalid signature"},
		{sign(now, "a2V5", "x"), 403, "invalid signature"}, // the undecoded secret as the key
		{sign(now, "key", "y"), 403, "invalid signature"},
		{sign(now, "key", "x"), 201, ""},
	} {
		status, text := ask(tt.signature, "x")
		require.Equal(t, tt.status, status, tt.signature)
		require.Equal(t, tt.text, text)
	}
	s.expect(200, "", "GET", "/_status", nil, "")
	s.expect(200, "", "GET", "/metrics", nil, "")
}

// The original's signatures cover only time and body: a replayed signature of a GET can delete a consumer. Scheme v2 prevents
// that.
func TestReplayedSignatures(t *testing.T) {
	key := []byte("key")
	for _, scheme := range []string{"v1", "v2"} {
		s := newSite(t, func(c *broker.Config) {
			c.Gateway.Mode, c.Gateway.Scheme, c.Gateway.Secret = "hmac", scheme, base64.StdEncoding.EncodeToString(key)
		})
		ask := func(method, target, value, body string) (int, string) {
			req, err := http.NewRequestWithContext(t.Context(), method, s.base()+target, strings.NewReader(body))
			require.NoError(t, err)
			req.Header.Set(signature.Header, value)
			for k, v := range producer {
				req.Header.Set(k, v)
			}
			resp, err := http.DefaultClient.Do(req)
			require.NoError(t, err)
			defer func() { _ = resp.Body.Close() }()
			b, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			return resp.StatusCode, string(b)
		}
		sign := func(at time.Time, method, target, body string) string {
			return signature.New(scheme, key, at, signature.Request{Method: method, Target: target, Body: []byte(body)}).String()
		}
		captured := sign(time.Now(), "GET", "/job-status?a=1", "")
		status, _ := ask("GET", "/job-status?a=1", captured, "")
		require.Equal(t, 200, status)
		want := map[string]int{"v1": 200, "v2": 403}[scheme]
		for _, target := range []string{"/job-status?a=1", "/job-status?a=2", "/producers"} {
			status, _ = ask("GET", target, captured, "")
			require.Equal(t, want, status, "%s replayed on %s", scheme, target)
		}
		status, _ = ask("DELETE", "/channel/ch/consumer/pull", captured, "")
		require.Equal(t, map[string]int{"v1": 400, "v2": 403}[scheme], status, "with v1 the signature is not what refuses it")

		broadcast := "/channel/ch/broadcast"
		status, text := ask("POST", broadcast, sign(time.Now(), "POST", broadcast, "x"), "y")
		require.Equal(t, 403, status, text)
		status, text = ask("POST", broadcast, sign(time.Now().Add(-6*time.Minute), "POST", broadcast, "x"), "x")
		require.Equal(t, 403, status, text)
		status, text = ask("POST", broadcast, sign(time.Now(), "POST", broadcast, "x"), "x")
		require.Equal(t, 201, status, text)
		status, text = ask("GET", "/channels", signature.New("v1", key, time.Now(), signature.Request{}).String(), "")
		require.Equal(t, map[string]int{"v1": 200, "v2": 401}[scheme], status, text)
		once := signature.New("v2", key, time.Now(), signature.Request{Method: "GET", Target: "/channels"}).String()
		status, text = ask("GET", "/channels", once, "")
		require.Equal(t, 200, status, text)
		status, text = ask("GET", "/channels", once, "")
		require.Equal(t, 403, status, "a nonce is used once with either scheme")
		require.Contains(t, text, "used before")

		transport, err := client.Signing(base64.StdEncoding.EncodeToString(key), nil)
		require.NoError(t, err)
		c := client.New(s.base(), &http.Client{Transport: transport})
		for range 2 {
			_, err = c.Broadcast(t.Context(), client.Producer{Channel: "ch", ChannelToken: "ct", ID: "pr", Token: "pt"}, client.Message{Payload: []byte("z")})
			require.NoError(t, err)
		}
	}
	for _, secret := range []string{"", "not base64"} {
		_, err := client.Signing(secret, nil)
		require.ErrorContains(t, err, "the secret of signatures is")
	}
}

// A request over a limit is refused, and the connection of a slow client is closed.
func TestLimitsOfARequest(t *testing.T) {
	s := newSite(t, func(c *broker.Config) {
		c.HTTP.MaxBodyBytes = 4 << 10
		c.HTTP.ReadTimeout = time.Second // long enough for the requests that are not slow on purpose
	})
	s.expect(413, "request body is larger than 4096 bytes", "PUT", "/producer/x", formType, "name="+strings.Repeat("x", 5<<10))
	address := strings.TrimPrefix(s.base(), "http://")
	talk := func(text string) string {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
		require.NoError(t, err)
		defer func() { _ = conn.Close() }()
		_, err = io.WriteString(conn, text)
		require.NoError(t, err)
		b, _ := io.ReadAll(conn) // until the server closes the connection
		return string(b)
	}
	require.Contains(t, talk("GET /healthz HTTP/1.1\r\nHost: x\r\nX-Large: "+strings.Repeat("x", 80<<10)+"\r\n\r\n"), " 431 ")
	talk("GET /healthz HTTP/1.1\r\nHost: x\r\n")
	talk("POST /channel/ch/broadcast HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\nX-Broker-Channel-Token: ct\r\nX-Broker-Producer-ID: " +
		"pr\r\nX-Broker-Producer-Token: pt\r\n\r\nab")
	require.Empty(t, s.work("GET", "queued-jobs"), "half a message is none")
}
