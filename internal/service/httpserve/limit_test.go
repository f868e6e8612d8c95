package httpserve

import (
	"bytes"
	"io"
	"log/slog"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// An address has as many connections as it may, and more when some are closed.
func TestConnectionsPerAddress(t *testing.T) {
	var log bytes.Buffer
	handler := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") })
	s, err := Listen(t.Context(), Config{Address: "127.0.0.1:0", Handler: handler, PerAddress: 2, Log: slog.New(slog.NewTextHandler(&log, nil))})
	require.NoError(t, err)
	ask := func(conn net.Conn) (string, error) {
		if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: h\r\nX-Forwarded-For: 10.1.2.3\r\n\r\n"); err != nil {
			return "", err
		}
		answer := make([]byte, 15)
		_, err := io.ReadFull(conn, answer)
		return string(answer), err
	}
	dial := func() net.Conn {
		conn, err := net.Dial("tcp", s.Addr())
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
	var held []net.Conn
	for range 2 {
		held = append(held, dial())
		answer, err := ask(held[len(held)-1])
		require.NoError(t, err)
		require.Equal(t, "HTTP/1.1 200 OK", answer)
	}
	for range 3 {
		_, err := ask(dial())
		require.Error(t, err, "whatever it says of others that it forwards for")
	}
	require.NoError(t, held[0].Close())
	require.Eventually(t, func() bool {
		_, err := ask(dial())
		return err == nil
	}, 10*time.Second, time.Millisecond)
	require.NoError(t, s.Stop(t.Context(), time.Second))
	require.Equal(t, 1, bytes.Count(log.Bytes(), []byte("connections refused")), log.String())
	require.Contains(t, log.String(), "address=127.0.0.1 most=2 refused=1")
}

func TestSite(t *testing.T) {
	for address, want := range map[string]string{
		"10.1.2.3:5": "10.1.2.3/32", "[::ffff:10.1.2.3]:5": "10.1.2.3/32", "[2001:db8:1:2:3::4]:5": "2001:db8:1:2::/64", "[fe80::1%lo]:5": "fe80::/64",
		"[::1]:5": "::1/128",
	} {
		addr, err := net.ResolveTCPAddr("tcp", address)
		require.NoError(t, err)
		require.Equal(t, want, site(addr).String())
	}
	require.False(t, site(&net.UnixAddr{}).IsValid())
}

// A client that does not read its answer is cut, whatever the time that requests may take.
func TestAnswersThatNobodyReads(t *testing.T) {
	written := make(chan error, 1)
	handler := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, err := w.Write(make([]byte, 64<<20))
		written <- err
	})
	s, err := Listen(t.Context(), Config{Address: "127.0.0.1:0", Handler: handler, Log: slog.New(slog.DiscardHandler), stall: 50 * time.Millisecond})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Stop(t.Context(), time.Second)) }()
	conn, err := net.Dial("tcp", s.Addr())
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	_, err = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: h\r\n\r\n")
	require.NoError(t, err)
	require.Error(t, <-written)
}
