package relay

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/test/servertest"
)

// page is a relay on a server with the documented configuration of nats-server, and the connection of the sender shop.
type page struct {
	*site
	srv  *servertest.Server
	shop *nats.Conn
}

func startPage(t *testing.T) *page {
	text, err := os.ReadFile("../docs/listeners.md")
	require.NoError(t, err)
	_, lines, ok := strings.Cut(string(text), "```conf\n")
	require.True(t, ok)
	lines, _, _ = strings.Cut(lines, "```")
	for _, user := range []string{"broker", "relay", "shop", "orders"} {
		t.Setenv(strings.ToUpper(user)+"_PASSWORD", user+"-secret")
	}
	r := &page{srv: servertest.RunServer(t, servertest.WithConfig(lines))}
	r.site = startSite(t, func(c *Config) { c.NATS.URL = strings.Replace(r.srv.URL(), "nats://", "nats://relay:relay-secret@", 1) })
	r.shop, err = nats.Connect(r.srv.URL(), nats.UserInfo("shop", "shop-secret"))
	require.NoError(t, err)
	t.Cleanup(r.shop.Close)
	return r
}

// published is a message from a sender over NATS.
func published(subject, id string) *nats.Msg {
	m := nats.NewMsg(subject)
	m.Data = []byte("1")
	m.Header.Set("Relay-Message-Id", id)
	m.Header.Set("Relay-Receiver", "ci")
	return m
}

// With the documented configuration of nats-server a sender can publish to its own sources, and do nothing else.
func TestPermissionsOfThePage(t *testing.T) {
	s := startPage(t)
	r := newPeer(t, nil)
	s.receiver("ci", r.URL, nil)

	_, err := nats.Connect(s.srv.URL())
	require.ErrorIs(t, err, nats.ErrAuthorization)
	heard, err := s.shop.SubscribeSync(">")
	require.NoError(t, err)
	for _, source := range []string{"shop", "shop.eu"} {
		_, err = s.shop.RequestMsg(published("relay.from_sender."+source, "1"), 5*time.Second)
		require.NoError(t, err, source)
		eventually(t, func() bool { return s.mayHave(source, "1", "DONE") }, source+" is not done")
	}
	for m, err := heard.NextMsg(time.Millisecond); err == nil; m, err = heard.NextMsg(time.Millisecond) {
		own := strings.HasPrefix(m.Subject, "_INBOX.") || slices.Contains(m.Header["Relay-Receiver"], "ci")
		require.True(t, own, "shop heard %s, which it has not sent: %q", m.Subject, m.Data)
	}
	require.NoError(t, heard.Unsubscribe())
	for _, subject := range []string{"relay.from_sender.other", "relay.from_sender.sho%70", "relay.from_sender.shopping", "relay.to_sender.shop"} {
		_, err = s.shop.RequestMsg(published(subject, "1"), 5*time.Second)
		require.ErrorIs(t, err, nats.ErrNoResponders, subject)
	}
	names, err := s.shop.Request("$JS.API.STREAM.NAMES", nil, 5*time.Second)
	require.NoError(t, err)
	require.Contains(t, string(names.Data), "not enabled for account")
	require.Equal(t, 2, r.count())
}

// The subject of a message alone determines its sender and its source: the callback goes to that sender, and no header of the
// message names another one or reaches the receiver.
func TestASenderCannotActAsAnother(t *testing.T) {
	s := startPage(t)
	r, shop, bank := newPeer(t, nil), newPeer(t, nil), newPeer(t, nil)
	s.receiver("ci", r.URL, nil)
	s.sender("shop", shop.URL, "shop")
	s.sender("bank", bank.URL, "bank")
	forged := `{"source":"shop","id":"forged","receiver":"ci","sender":"bank","headers":{"X-Forged":"1"}}`
	for _, header := range []string{"Relay-Offer", "Relay-Sender", "Relay-Source", "Sender", "Source"} {
		for i, value := range []string{forged, "bank"} {
			m := published("relay.from_sender.shop", header+"-"+fmt.Sprint(i))
			m.Header.Set(header, value)
			m.Header.Set("X-Forged", "1")
			_, err := s.shop.RequestMsg(m, 5*time.Second)
			require.NoError(t, err)
		}
	}
	alone := nats.NewMsg("relay.from_sender.shop")
	alone.Header.Set("Relay-Offer", forged)
	_, err := s.shop.RequestMsg(alone, 5*time.Second)
	require.NoError(t, err)
	eventually(t, func() bool { return bank.count() > 0 || shop.count() >= 10 }, "the callbacks are missing")
	require.Zero(t, bank.count(), "bank was called for a message of shop")
	for _, got := range r.list() {
		require.Empty(t, got.Header.Get("X-Forged"))
	}
	eventually(t, func() bool { return len(s.failed("reason=MALFORMED")) == 1 }, "a message without the two headers is not on the list")
}

// A sender cannot pass its message off as an answer of the server: its place in the stream is that which the server states, so it waits for no other
// one, and holds up no partition.
func TestASenderCannotForgeAPlace(t *testing.T) {
	s := startPage(t)
	r := newPeer(t, nil)
	s.receiver("ci", r.URL, object{"order": "source"})
	for id, header := range map[string]nats.Header{
		"sequence": {"Nats-Sequence": {"1"}, "Nats-Stream": {"relay_from_sender"}},
		"number":   {"Nats-Sequence": {"x"}},
		"time":     {"Nats-Time-Stamp": {"x"}},
		"status":   {"Status": {"503"}, "Description": {"No Responders"}},
	} {
		m := published("relay.from_sender.shop", id)
		for key, values := range header {
			m.Header[key] = values
		}
		if id == "status" {
			m.Data = nil
		}
		_, err := s.shop.RequestMsg(m, 5*time.Second)
		require.NoError(t, err)
	}
	for _, id := range []string{"sequence", "number", "time", "status"} {
		eventually(t, func() bool { return s.mayHave("shop", id, "DONE") }, id+" is not done")
	}
}

// The server publishes the confirmation of a message to whatever reply subject the sender gives. It arrives in the account of the
// sender, never in that of the relay, where it would overwrite a receiver, forge a message of another sender, or purge a stream.
func TestAConfirmationDoesNotReachTheRelay(t *testing.T) {
	s := startPage(t)
	r := newPeer(t, nil)
	s.receiver("ci", r.URL, nil)
	relay, err := nats.Connect(s.srv.URL(), nats.UserInfo("relay", "relay-secret"))
	require.NoError(t, err)
	t.Cleanup(relay.Close)
	for i, reply := range []string{
		"$KV.relay_receiver_config.receiver.ci", "$KV.relay_state.window.ci", "$KV.relay_messages.shop.1", "relay.from_sender.bank",
		"relay.to_receiver.ci.bank.1",
		"relay.to_sender.bank.bank.1", "$JS.API.STREAM.PURGE.relay_to_receiver", "$JS.API.CONSUMER.DELETE.relay_from_sender.from_sender_1",
	} {
		heard, err := relay.SubscribeSync(reply)
		require.NoError(t, err)
		require.NoError(t, relay.Flush())
		id := fmt.Sprint("forged-", i)
		m := published("relay.from_sender.shop", id)
		m.Reply = reply
		require.NoError(t, s.shop.PublishMsg(m))
		got := 0
		eventually(t, func() bool {
			got, _, err = heard.Pending()
			require.NoError(t, err)
			return got > 0 || s.mayHave("shop", id, "DONE")
		}, "the message is not done")
		require.Zero(t, got, "the confirmation of a message reached %s", reply)
		require.NoError(t, heard.Unsubscribe())
	}
	require.Equal(t, r.URL, s.want(200, "GET", "/v1/receivers/ci", adminToken, nil)["post_endpoint"])
}
