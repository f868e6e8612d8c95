package relay

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/test/servertest"
)

// With the README's configuration of nats-server a sender can publish to its own sources, and do nothing else.
func TestPermissionsOfTheReadme(t *testing.T) {
	text, err := os.ReadFile("README.md")
	require.NoError(t, err)
	_, lines, ok := strings.Cut(string(text), "```conf\n")
	require.True(t, ok)
	lines, _, _ = strings.Cut(lines, "```")
	t.Setenv("RELAY_PASSWORD", "relay-secret")
	t.Setenv("SHOP_PASSWORD", "shop-secret")
	srv := servertest.RunServer(t, servertest.WithConfig(lines))
	s := startSite(t, func(c *Config) { c.NATS.URL = strings.Replace(srv.URL(), "nats://", "nats://relay:relay-secret@", 1) })
	r := newPeer(t, nil)
	s.receiver("ci", r.URL, nil)

	_, err = nats.Connect(srv.URL())
	require.ErrorIs(t, err, nats.ErrAuthorization)
	refused := make(chan string, 10)
	nc, err := nats.Connect(srv.URL(), nats.UserInfo("shop", "shop-secret"), nats.CustomInboxPrefix("_INBOX_shop"),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { refused <- err.Error() }))
	require.NoError(t, err)
	defer nc.Close()
	message := func(subject string) *nats.Msg {
		m := nats.NewMsg(subject)
		m.Data = []byte("1")
		m.Header.Set("Relay-Message-Id", "1")
		m.Header.Set("Relay-Receiver", "ci")
		return m
	}
	for _, source := range []string{"shop", "shop.eu"} {
		_, err = nc.RequestMsg(message("relay.from_sender."+source), 5*time.Second)
		require.NoError(t, err, source)
		eventually(t, func() bool { return s.mayHave(source, "1", "DONE") }, source+" is not done")
	}
	for _, subject := range []string{"relay.from_sender.other", "relay.from_sender.sho%70", "relay.from_sender.shopping", "$JS.API.STREAM.NAMES", "relay.to_sender.shop"} {
		require.NoError(t, nc.PublishMsg(message(subject)))
		require.Contains(t, <-refused, `Permissions Violation for Publish to "`+subject+`"`)
	}
	for _, subject := range []string{"relay.>", "_INBOX.>", ">"} {
		_, err = nc.SubscribeSync(subject)
		require.NoError(t, err)
		require.Contains(t, <-refused, `Permissions Violation for Subscription to "`+subject+`"`)
	}
	require.Equal(t, 2, r.count())
}
