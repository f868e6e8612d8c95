package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/cmd/jetpull/internal/brokercmd"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/relaycmd"
)

// A request that is refused is answered before its body is there, and its connection is closed, so that nobody waits for the rest.
func TestRefusedRequestsDoNotWaitForTheBody(t *testing.T) {
	t.Parallel()
	broker, stopBroker := listen(t, brokercmd.New(), "--admin-token", "secret", "--http-max-body-bytes", "1000")
	defer func() { require.NoError(t, stopBroker()) }()
	relay, stopRelay := listen(t, relaycmd.New(), "--admin-token", "secret", "--http-max-body-bytes", "1000")
	defer func() { require.NoError(t, stopRelay()) }()
	const (
		form  = "Content-Type: application/x-www-form-urlencoded\r\n"
		token = "Authorization: Bearer secret\r\n"
	)
	chunk := fmt.Sprintf("Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n", 2000, strings.Repeat("x", 2000))
	for _, tt := range []struct {
		url, request string
		status       int
	}{
		{broker, "PUT /channel/c HTTP/1.1\r\nHost: localhost\r\n" + form + "Content-Length: 1000000\r\n\r\nt", 401},
		{broker, "PUT /channel/c HTTP/1.1\r\nHost: localhost\r\n" + form + "Content-Length: 10\r\n\r\nt", 401},
		{broker, "PUT /channel/c HTTP/1.1\r\nHost: localhost\r\n" + form + "Transfer-Encoding: chunked\r\n\r\n1\r\nt\r\n", 401},
		{broker, "PUT /nothing HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\nt", 404},
		{broker, "PUT /channel/c HTTP/1.1\r\nHost: localhost\r\n" + token + form + chunk, 413},
		{relay, "PUT /v1/receivers/r HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n{", 401},
		{relay, "POST /v1/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n{", 401},
		{relay, "POST /v1/messages HTTP/1.1\r\nHost: localhost\r\n" + token + chunk, 413},
	} {
		conn, err := net.Dial("tcp", strings.TrimPrefix(tt.url, "http://"))
		require.NoError(t, err)
		require.NoError(t, conn.SetDeadline(time.Now().Add(15*time.Second)))
		_, err = io.WriteString(conn, tt.request)
		require.NoError(t, err)
		r := bufio.NewReader(conn)
		resp, err := http.ReadResponse(r, nil)
		require.NoError(t, err, tt.request[:40])
		text, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.Equal(t, tt.status, resp.StatusCode, "%s", text)
		require.True(t, resp.Close, "Connection: close")
		_, err = r.ReadByte()
		require.ErrorIs(t, err, io.EOF, "it is closed, and the rest of the body is not waited for")
		require.NoError(t, conn.Close())
	}
}
