package main

import (
	"bufio"
	"bytes"
	"errors"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/internal/natstest"
)

// Clients at one address that ask and never read do not keep a server from answering others, however few files it may open.
func TestSlowReadersHoldNoServer(t *testing.T) {
	dir := t.TempDir()
	for _, tt := range []struct{ name, path, line string }{
		{"relay", "/openapi.json", "relay --listen 127.0.0.1:0 --store-dir " + filepath.Join(dir, "relay")},
		{"broker", "/openapi.json", "broker --listen 127.0.0.1:0 --store-dir " + filepath.Join(dir, "broker")},
		{"feed", "/metrics", "feed --metrics 127.0.0.1:0 --exec true --db sqlite:" + filepath.Join(dir, "feed.db")},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cmd := exec.Command("sh", "-c", `ulimit -n 256; exec "$0" `+tt.line+" 2>&1", os.Args[0])
			natstest.EndWithParent(cmd, syscall.SIGKILL)
			cmd.Env = append(os.Environ(), asJetpull+"=1")
			out, err := cmd.StdoutPipe()
			require.NoError(t, err)
			require.NoError(t, cmd.Start())
			defer func() { _, _ = cmd.Process.Kill(), cmd.Wait() }()
			address := ""
			lines := bufio.NewScanner(out)
			for address == "" && lines.Scan() {
				if m := regexp.MustCompile(`(?:listening on|"url":")\W*http://([\d.:]+)`).FindStringSubmatch(lines.Text()); m != nil {
					address = m[1]
				}
			}
			require.NotEmpty(t, address)
			go func() {
				for lines.Scan() { // the command must not wait for its log
				}
			}()
			requests := bytes.Repeat([]byte("GET "+tt.path+" HTTP/1.1\r\nHost: localhost\r\n\r\n"), 60)
			for range 300 {
				conn, err := net.DialTimeout("tcp", address, 10*time.Second)
				require.NoError(t, err)
				t.Cleanup(func() { _ = conn.Close() })
				require.NoError(t, conn.(*net.TCPConn).SetReadBuffer(4096))
				_, err = conn.Write(requests)
				require.True(t, err == nil || strings.Contains(err.Error(), "reset") || strings.Contains(err.Error(), "broken pipe"), err)
			}
			other := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
			client := http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DialContext: other.DialContext, DisableKeepAlives: true}}
			require.EventuallyWithT(t, func(c *assert.CollectT) {
				resp, err := client.Get("http://" + address + "/healthz")
				if assert.NoError(c, err) {
					assert.NoError(c, errors.Join(nil, resp.Body.Close()))
					assert.Equal(c, http.StatusOK, resp.StatusCode)
				}
			}, 20*time.Second, 10*time.Millisecond)
		})
	}
}
