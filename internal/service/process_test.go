package service

import (
	"bytes"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestOpenLog(t *testing.T) {
	var errOut bytes.Buffer
	log, closeLog, err := OpenLog("", "warn", &errOut)
	require.NoError(t, err)
	log.Info("no")
	log.Warn("yes", "wait", 90*time.Second)
	require.NoError(t, closeLog())
	require.Contains(t, errOut.String(), `"msg":"yes","wait":"1m30s"`)
	require.NotContains(t, errOut.String(), `"no"`)

	path := filepath.Join(t.TempDir(), "log")
	for range 2 {
		log, closeLog, err = OpenLog(path, "fatal", nil)
		require.NoError(t, err)
		log.Error("line")
		log.Warn("no")
		require.NoError(t, closeLog())
	}
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, 2, bytes.Count(text, []byte("\n")), "it is appended to")

	_, _, err = OpenLog("", "loud", nil)
	require.ErrorContains(t, err, "[log] log-level")
	_, _, err = OpenLog("/does/not/exist", "info", nil)
	require.ErrorContains(t, err, "[log] filename")
}

func TestLoopback(t *testing.T) {
	for listener, want := range map[string]bool{
		"127.0.0.1:1": true, "127.9.9.9:1": true, "[::1]:1": true, "localhost:1": true,
		"0.0.0.0:1": false, ":1": false, "[::]:1": false, "10.0.0.1:1": false, "example.com:1": false,
	} {
		got, err := Loopback(listener)
		require.NoError(t, err)
		require.Equal(t, want, got, listener)
	}
	_, err := Loopback("8080")
	require.ErrorContains(t, err, `[http] listener: "8080" is not host:port`)
}

func TestEgress(t *testing.T) {
	for _, tt := range []struct {
		networks, listener string
		anywhere           bool
		allowed            int
	}{
		{"any", ":80", true, 0},
		{"public", "127.0.0.1:80", false, 0},
		{"auto", "127.0.0.1:80", true, 0},
		{"auto", ":80", false, 0},
		{"auto", "none", false, 0},
		{"10.0.0.0/8, fd00::/8", "127.0.0.1:80", false, 2},
	} {
		got, err := Egress{Networks: tt.networks}.Policy("relay", tt.listener)
		require.NoError(t, err)
		require.Equal(t, tt.anywhere, got.Any, "%+v", tt)
		require.Len(t, got.Allowed, tt.allowed)
	}
	for _, bad := range []string{"", "none", "10.0.0.0", "10.0.0.0/33", "10.0.0.0/8,"} {
		_, err := Egress{Networks: bad}.Policy("relay", ":80")
		require.ErrorContains(t, err, "networks: ", bad)
	}
	for _, proxy := range []string{"proxy:3128", "socks5://proxy", "http://", "http://u:s3cret@proxy/path"} {
		_, err := Egress{Networks: "any", EgressProxy: proxy}.Policy("relay", ":80")
		require.ErrorContains(t, err, "egress-proxy: it is not the URL of an HTTP proxy: give one such as http://")
		require.NotContains(t, err.Error(), "s3cret")
	}
	_, err := Egress{Networks: "any", EgressCertificates: "/none"}.Policy("relay", ":80")
	require.ErrorContains(t, err, `egress-certificates: "/none" is not a folder`)
}

// The error names the address that does not connect, without the passwords in it.
func TestConnectNamesTheServer(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := listener.Addr().String()
	require.NoError(t, listener.Close())
	_, err = Connect("nats://user:secret@"+address, "", NATSOptions("test", slog.New(slog.DiscardHandler))...)
	require.ErrorContains(t, err, "connect to NATS at nats://…@"+address)
	require.NotContains(t, err.Error(), "secret")
	_, err = Connect("nats://"+address, "/does/not/exist")
	require.Error(t, err)
}

// After SIGHUP the log goes on in a new file of the same name, as logrotate wants it.
func TestHangupOpensTheLogAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "broker.log")
	log, stop, err := OpenLog(path, "info", io.Discard)
	require.NoError(t, err)
	log.Info("before")
	require.NoError(t, os.Rename(path, path+".1"))
	log.Info("between")
	self, err := os.FindProcess(os.Getpid())
	require.NoError(t, err)
	require.NoError(t, self.Signal(syscall.SIGHUP))
	require.Eventually(t, func() bool {
		log.Info("after")
		now, err := os.ReadFile(path)
		return err == nil && len(now) > 0
	}, 20*time.Second, time.Millisecond)
	require.NoError(t, stop())
	old, err := os.ReadFile(path + ".1")
	require.NoError(t, err)
	require.Contains(t, string(old), "before")
	require.Contains(t, string(old), "between")
}
