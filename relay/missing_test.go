package relay

import (
	"context"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/test/servertest"
)

// A relay has all permissions of its account. If one is missing, the log names each subject that the server has refused, whether the start fails
// for it or the relay lacks it later. Then /readyz is 503 and names it too.
func TestAMissingPermissionIsReported(t *testing.T) {
	for _, deny := range []string{
		"$JS.API.STREAM.CREATE.relay_to_receiver", "$JS.API.STREAM.INFO.relay_to_sender", "$KV.relay_receiver_config.>", "$KV.relay_messages.>",
		"relay.to_receiver.>",
		"$JS.API.CONSUMER.CREATE.relay_to_receiver.>", "$JS.API.CONSUMER.MSG.NEXT.relay_to_receiver.>", "$JS.API.CONSUMER.CREATE.relay_failed_messages.>",
	} {
		t.Run(deny, func(t *testing.T) {
			t.Parallel()
			d := servertest.StartDenied(t, deny, func(ctx context.Context, url string, log *slog.Logger) (*Node, error) {
				cfg := testConfig(t.TempDir())
				cfg.NATS.URL = url
				return Start(ctx, cfg, log)
			})
			if d.Node == nil {
				return
			}
			ended, cancel := context.WithCancel(t.Context())
			cancel()
			defer func() { _ = d.Node.Stop(ended) }() // it may fail to hand over what is in progress
			s := &site{t, d.Node.URL()}
			s.call("PUT", "/v1/receivers/ci", adminToken, object{"post_endpoint": newPeer(t, nil).URL})
			s.call("POST", "/v1/messages", adminToken, message("a", "1", "ci"))
			eventually(t, d.Named, "the log does not name it")
			code, body := s.call("GET", "/readyz", "", nil)
			require.Equal(t, 503, code, string(body))
			require.Contains(t, string(body), "lacks a permission: Publish to "+strings.TrimSuffix(deny, ">"))
		})
	}
}
