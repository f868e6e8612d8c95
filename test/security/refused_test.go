package security

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// tokenInBody are the routes whose token is a field of the form, as in the original: without the body nobody knows whether to refuse them.
var tokenInBody = []string{"POST /channel/{channel}/consumer/{consumer}/dlq"}

// A request that is refused before its body is read is answered without it, and its connection ends.
func TestRefusedRequestsDoNotWaitForTheBody(t *testing.T) {
	for name, f := range map[string]*fixture{"broker": newBroker(t), "relay": newRelay(t)} {
		probes := 0
		for _, o := range f.operations(t) {
			if who := allowed[name][o.String()]; o.method == http.MethodGet || who == everybody || slices.Contains(tokenInBody, o.String()) {
				continue
			}
			probes++
			conn := f.raw(t, fmt.Sprintf("%s %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: %s\r\nContent-Length: 1000000\r\n\r\nx", o.method,
				o.at(f.values), o.bodyType))
			require.NoError(t, conn.SetDeadline(time.Now().Add(10*time.Second)))
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			require.NoError(t, err, "%s: %s", name, o)
			require.GreaterOrEqual(t, resp.StatusCode, 400, "%s: %s", name, o)
			require.True(t, resp.Close, "%s: %s has no Connection: close", name, o)
			_ = resp.Body.Close()
			_ = conn.Close()
		}
		f.alive(t)
		t.Logf("%s: %d probes", name, probes)
	}
}

// A body that is larger than a route takes is refused with an error of the client, on every route that has a body.
func TestOversizedBodiesOnEveryRoute(t *testing.T) {
	body := strings.Repeat("x", 5<<20)
	for name, f := range map[string]*fixture{"broker": newBroker(t), "relay": newRelay(t)} {
		probes := 0
		for _, o := range f.operations(t) {
			if o.method == http.MethodGet || o.bodyType == "" {
				continue
			}
			probes++
			header := bearer(adminToken)
			header.Set("Content-Type", o.bodyType)
			a := f.ask(t, o.method, o.at(f.values), header, body)
			if a.status == http.StatusOK {
				require.Contains(t, string(a.body), "too_large", "%s: %s", name, o) // a batch has an answer for each line
				continue
			}
			require.True(t, a.status >= 400 && a.status < 500, "%s: %s: %d %s", name, o, a.status, a.body)
		}
		f.alive(t)
		t.Logf("%s: %d probes", name, probes)
	}
}

// A proxy could see another end of a request with both headers than the system does. The connection is not used for a further request.
func TestConnectionsEndAfterAmbiguousRequests(t *testing.T) {
	const chunks = "Host: localhost\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\nGET /healthz HTTP/1.1\r\nHost: " +
		"localhost\r\n\r\n"
	for name, f := range map[string]*fixture{"broker": newBroker(t), "relay": newRelay(t)} {
		for _, path := range []string{"GET /healthz", "GET /openapi.json", "GET /console/", "POST /v1/messages", "POST /channel/orders/broadcast"} {
			answers := bufio.NewReader(f.raw(t, path+" HTTP/1.1\r\n"+chunks))
			resp, err := http.ReadResponse(answers, nil)
			require.NoError(t, err, "%s: %s", name, path)
			_, err = io.Copy(io.Discard, resp.Body)
			require.NoError(t, err)
			require.True(t, resp.Close, "%s: %s", name, path)
			_, err = http.ReadResponse(answers, nil)
			require.Error(t, err, "%s: %s: the connection is kept", name, path)
		}
		f.alive(t)
	}
}
