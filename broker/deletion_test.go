package broker

import (
	"fmt"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/test/servertest"
)

// When a node has answered that a channel is deleted, another node may still know it for a moment. Then that node refuses broadcasts and claims, and
// shows nothing of the channel. A message that it has accepted meanwhile has no jobs, also if the channel is created again.
func TestADeletedChannelIsForgottenByOtherNodes(t *testing.T) {
	srv := servertest.RunServer(t)
	a, b := startNode(t, externalConfig(t, srv.URL(), 1)), startNode(t, externalConfig(t, srv.URL(), 1))
	tokens := map[string]string{"X-Broker-Channel-Token": "ct", "X-Broker-Producer-ID": "pr", "X-Broker-Producer-Token": "pt"}
	putConsumer(t, a, "k", "http://127.0.0.1:9/", url.Values{"type": {"pull"}})
	broadcast(t, a, "m", "x", nil)
	waitState(t, b, "m", "k", "QUEUED")
	_, _, header := call(t, a, "GET", "/channel/ch", nil, "")
	code, body, _ := call(t, a, "DELETE", "/channel/ch?force=true", map[string]string{"If-Match": header.Get("ETag")}, "")
	require.Equal(t, 204, code, body)
	late := 0
	waitUntil(t, func() bool {
		tokens["X-Broker-Message-ID"] = fmt.Sprint("late", late)
		code, body, _ := call(t, b, "POST", "/channel/ch/broadcast", tokens, "x")
		if code == 201 {
			late++
			return false
		}
		require.Contains(t, []int{401, 403, 404}, code, body)
		return true
	}, "node b goes on to accept broadcasts")
	for _, path := range []string{"", "/message/m", "/consumer/k"} {
		waitUntil(t, func() bool { code, _, _ := call(t, b, "GET", "/channel/ch"+path, nil, ""); return code == 404 }, "node b goes on to show "+path)
	}
	code, body, _ = call(t, b, "POST", "/channel/ch/consumer/k/claim", asWorker, "")
	require.Contains(t, []int{401, 403, 404}, code, body)
	t.Logf("%d broadcasts were accepted after the deletion", late)

	form := map[string]string{"Content-Type": "application/x-www-form-urlencoded"}
	code, body, _ = call(t, b, "PUT", "/channel/ch", form, "token=ct")
	require.Equal(t, 200, code, body)
	putConsumer(t, b, "k", "http://127.0.0.1:9/", url.Values{"type": {"pull"}})
	broadcast(t, b, "m", "x", nil)
	waitState(t, a, "m", "k", "QUEUED")
	jobs := claim(t, b, "k", "?limit=25")
	require.Len(t, jobs, 1)
	require.Equal(t, "m", jobs[0].Message.MessageID)
}
