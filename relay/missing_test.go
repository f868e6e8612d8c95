package relay

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/test/servertest"
)

// startLimited starts a relay whose user has permissions, of which that for a subject is missing, if any.
func startLimited(t *testing.T, permissions, missing string) *servertest.Denied[Node] {
	return servertest.StartLimited(t, permissions, missing, func(ctx context.Context, url string, log *slog.Logger) (*Node, error) {
		cfg := testConfig(t.TempDir())
		cfg.NATS.URL = url
		return Start(ctx, cfg, log)
	})
}

// A relay needs no permission that is not in docs/permissions.md.
func TestThePermissionsOfThePageSuffice(t *testing.T) {
	d := startLimited(t, servertest.PermissionsOf(t, "..", "Relay"), "")
	require.NotNil(t, d.Node, d.Log)
	defer func() { require.NoError(t, d.Node.Stop(context.Background())) }()
	s := &site{t, d.Node.URL()}
	s.receiver("ci", newPeer(t, nil).URL, object{"rate_limit": 100})
	s.sender("shop", newPeer(t, nil).URL, "shop")
	s.want(200, "POST", "/v1/messages?wait=30s", adminToken, message("shop", "1", "ci"))
	s.awaitStatus("shop", "1", "DONE")
	refusing := newPeer(t, func(int, seen) (int, string) { return http.StatusBadRequest, "" })
	s.receiver("ci", refusing.URL, nil)
	s.want(202, "POST", "/v1/messages", adminToken, message("shop", "2", "ci"))
	eventually(t, func() bool { return len(s.failed("message=2")) == 1 }, "it is not on the list")
	s.receiver("ci", newPeer(t, nil).URL, nil)
	s.operate("redrive", object{"filter": object{}})
	s.awaitStatus("shop", "2", "DONE")
	s.want(204, "DELETE", "/v1/receivers/ci", adminToken, nil)
	s.want(200, "GET", "/readyz", "", nil)
	require.NotContains(t, d.Log.String(), "Permissions Violation")
}

// If a permission of a relay's account is missing, the log names each subject that the server has refused, whether the start fails for it or the
// relay lacks it later. Then /readyz is 503 and names it too.
func TestAMissingPermissionIsReported(t *testing.T) {
	all := maps.Collect(servertest.WithoutEach(servertest.PermissionsOf(t, "..", "Relay")))
	for _, deny := range []string{
		"$JS.API.STREAM.CREATE.relay_to_receiver", "$JS.API.STREAM.INFO.relay_to_sender", "$KV.relay_receiver_config.>", "$KV.relay_messages.>",
		"relay.to_receiver.>",
		"$JS.API.CONSUMER.CREATE.relay_to_receiver.>", "$JS.API.CONSUMER.MSG.NEXT.relay_to_receiver.>", "$JS.API.CONSUMER.CREATE.relay_failed_messages.>",
	} {
		all[deny] = fmt.Sprintf(`publish: {allow: ">", deny: %q}`, deny)
	}
	for missing, permissions := range all {
		t.Run(missing, func(t *testing.T) {
			t.Parallel()
			d := startLimited(t, permissions, missing)
			if d.Node == nil {
				return
			}
			ended, cancel := context.WithCancel(t.Context())
			cancel()
			defer func() { _ = d.Node.Stop(ended) }() // it may fail to hand over what is in progress
			s := &site{t, d.Node.URL()}
			s.call("PUT", "/v1/receivers/ci", adminToken, object{"post_endpoint": newPeer(t, nil).URL})
			s.call("POST", "/v1/messages?wait=1s", adminToken, message("a", "1", "ci"))
			eventually(t, d.Named, "the log does not name it")
			code, body := s.call("GET", "/readyz", "", nil)
			require.Equal(t, 503, code, string(body))
			require.Regexp(t, "lacks a permission: .*(Publish|Subscription) to "+regexp.QuoteMeta(servertest.Literal(missing)), string(body))
		})
	}
}
