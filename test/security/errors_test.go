package security

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Which address a receiver has is in the errors that operators see, and not in those of senders and of access tokens that only read.
func TestAddressesAreForOperators(t *testing.T) {
	const refused = "connection refused"
	// errorOf waits until an attempt has failed, and returns the answer.
	errorOf := func(s *system, path string, header http.Header) string {
		var body string
		require.Eventually(t, func() bool {
			body = string(s.ask(t, http.MethodGet, path, header, "").body)
			return strings.Contains(body, refused)
		}, time.Minute, 20*time.Millisecond, "%s: %s: %s", s.name, path, &body)
		return body
	}
	relay := newRelay(t)
	relay.must(t, http.MethodPut, "/v1/receivers/down", "application/json", `{"post_endpoint":"http://127.0.0.1:1/hook"}`)
	relay.must(t, http.MethodPost, "/v1/messages", "application/json", `{"source_id":"shop","message_id":"m-2","receiver":"down","payload":1}`)
	require.NotContains(t, errorOf(relay.system, "/v1/messages/shop/m-2", relay.tokens["sender"]), "127.0.0.1")
	require.Contains(t, errorOf(relay.system, "/v1/messages/shop/m-2", bearer(adminToken)), "127.0.0.1:1")

	broker := newBroker(t)
	broker.must(t, http.MethodPut, "/channel/orders/consumer/down", formType,
		url.Values{"token": {"k"}, "type": {"push"}, "callbackUrl": {"http://127.0.0.1:1/hook"}}.Encode())
	a := broker.ask(t, http.MethodPost, "/channel/orders/broadcast", http.Header{
		"X-Broker-Channel-Token": {"channel-secret"}, "X-Broker-Producer-Id": {"shop"}, "X-Broker-Producer-Token": {"producer-secret"},
		"X-Broker-Message-Id": {"m-2"},
	}, "x")
	require.Equal(t, http.StatusCreated, a.status, string(a.body))
	message := string(broker.must(t, http.MethodGet, "/channel/orders/message/m-2", "", "").body)
	_, path, ok := strings.Cut(message, `"AttemptsURL":"`)
	require.True(t, ok, message)
	path, _, _ = strings.Cut(path, `"`)
	require.NotContains(t, errorOf(broker.system, path, broker.tokens["read"]), "dial tcp 127.0.0.1")
	require.Contains(t, errorOf(broker.system, path, broker.tokens["manage"]), "dial tcp 127.0.0.1:1")
}
