package httpserve

import (
	"bufio"
	"io"
	"log/slog"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A connection is kept only after a request whose end a proxy cannot see elsewhere.
func TestConnectionAfterAnAmbiguousRequest(t *testing.T) {
	echo := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) })
	s, err := Listen(t.Context(), Config{Address: "127.0.0.1:0", Handler: echo, Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Stop(t.Context(), time.Minute)) }()
	const next = "GET /next HTTP/1.1\r\nHost: x\r\n\r\n"
	for _, tt := range []struct {
		request string
		kept    bool
	}{
		{"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello", true},
		{"GET / HTTP/1.1\r\nHost: x\r\n\r\n", true},
		{"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", false},
		{"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nContent-Length: 0\r\n\r\n0\r\n\r\n", false},
		{"POST / HTTP/1.0\r\nHost: x\r\nConnection: keep-alive\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\nhello", false},
	} {
		conn, err := net.Dial("tcp", s.Addr())
		require.NoError(t, err)
		require.NoError(t, conn.SetDeadline(time.Now().Add(time.Minute)))
		_, err = io.WriteString(conn, tt.request+next)
		require.NoError(t, err)
		answers := bufio.NewReader(conn)
		resp, err := http.ReadResponse(answers, nil)
		require.NoError(t, err, tt.request)
		_, err = io.Copy(io.Discard, resp.Body)
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, resp.StatusCode)
		require.Equal(t, !tt.kept, resp.Close, tt.request)
		_, err = http.ReadResponse(answers, nil)
		require.Equal(t, tt.kept, err == nil, "%s: the next request", tt.request)
		require.NoError(t, conn.Close())
	}
}
