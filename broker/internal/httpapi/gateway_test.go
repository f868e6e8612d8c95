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
		{"t=1,v1=00,v1=01", 403, "request timestamp outside tolerance window"},
		{sign(now.Add(-6*time.Minute), "key", "x"), 403, "request timestamp outside tolerance window"},
		{sign(now.Add(6*time.Minute), "key", "x"), 403, "request timestamp outside tolerance window"},
		{sign(now, "other", "x"), 403, "invalid signature"},
		{sign(now, "a2V5", "x"), 403, "invalid signature"}, // the secret as it is written, not decoded
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

// What is too much is refused, and a client that sends slowly is cut.
func TestLimitsOfARequest(t *testing.T) {
	s := newSite(t, func(c *broker.Config) {
		c.HTTP.MaxBodyBytes = 4 << 10
		c.HTTP.ReadTimeout = time.Second // time enough for the requests that are not slow on purpose
	})
	s.expect(413, "request body is larger than 4096 bytes", "PUT", "/producer/x", formType, "name="+strings.Repeat("x", 5<<10))
	address := strings.TrimPrefix(s.base(), "http://")
	talk := func(text string) string {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
		require.NoError(t, err)
		defer func() { _ = conn.Close() }()
		require.NoError(t, conn.SetDeadline(time.Now().Add(10*time.Second)))
		_, err = io.WriteString(conn, text)
		require.NoError(t, err)
		b, _ := io.ReadAll(conn)
		return string(b)
	}
	require.Contains(t, talk("GET /healthz HTTP/1.1\r\nHost: x\r\nX-Large: "+strings.Repeat("x", 80<<10)+"\r\n\r\n"), " 431 ")
	begin := time.Now()
	talk("GET /healthz HTTP/1.1\r\nHost: x\r\n")
	talk("POST /channel/ch/broadcast HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\nX-Broker-Channel-Token: ct\r\nX-Broker-Producer-ID: pr\r\nX-Broker-Producer-Token: pt\r\n\r\nab")
	require.Less(t, time.Since(begin), 5*time.Second)
	require.Empty(t, s.work("GET", "queued-jobs"), "half a message is none")
}
