package jetpull_test

import (
	"bufio"
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull"
)

// Servers whose pulls work otherwise are refused by their version.
func TestSubscribeRefusesOldServers(t *testing.T) {
	for version, refused := range map[string]bool{"2.10.29": true, "1.4.1": true, "2.11.0": false, "3.0.0": false, "dev": false} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		go serve(l, version)
		nc, err := nats.Connect("nats://" + l.Addr().String())
		require.NoError(t, err)
		js, err := jetstream.New(nc)
		require.NoError(t, err)
		_, err = jetpull.Subscribe(t.Context(), js, "S", "C")
		require.Equal(t, refused, strings.Contains(err.Error(), `server "old" has version `+version), "%s: %v", version, err)
		nc.Close()
		require.NoError(t, l.Close())
	}
}

// serve is a server of a version that has no consumers.
func serve(l net.Listener, version string) {
	conn, err := l.Accept()
	if err != nil {
		return
	}
	defer conn.Close()
	_, _ = fmt.Fprintf(conn, "INFO {\"server_name\":\"old\",\"version\":%q,\"headers\":true,\"max_payload\":1048576}\r\n", version)
	sid := ""
	for in := bufio.NewScanner(conn); in.Scan(); {
		switch verb, rest, _ := strings.Cut(in.Text(), " "); verb {
		case "PING":
			_, _ = fmt.Fprint(conn, "PONG\r\n")
		case "SUB":
			sid = rest[strings.LastIndexByte(rest, ' ')+1:]
		case "PUB": // a request for the consumer's info, on the subscription that was made last
			_, _ = fmt.Fprintf(conn, "HMSG %s %s 16 16\r\nNATS/1.0 503\r\n\r\n\r\n", strings.Fields(rest)[1], sid)
		}
	}
}
