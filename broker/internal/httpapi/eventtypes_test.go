package httpapi_test

import (
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A consumer gets only its event types. Filtered messages are in none of its lists and counts.
func TestEventTypes(t *testing.T) {
	s := newSite(t, nil)
	for _, bad := range []string{"a b", "a*b", "**", "ü", "{a", strings.Repeat("x", 129), strings.Repeat("xxxxxxx,", 300)} {
		form := url.Values{"callbackUrl": {"http://h/"}, "type": {"pull"}, "eventTypes": {bad}}.Encode()
		refused := s.expect(400, "", "PUT", "/channel/ch/consumer/bad", formType, form)
		require.Contains(t, refused.body, "Bad Request: eventTypes: ")
		if !strings.ContainsAny(bad, "*,") {
			refused = s.expect(400, "", "POST", "/channel/ch/broadcast", with(producer, header{"X-Broker-Event-Type": bad}), "x")
			require.Contains(t, refused.body, "event type")
		}
	}
	consumer := func(id, types string) answer {
		return s.put("/channel/ch/consumer/"+id, url.Values{"type": {"pull"}, "callbackUrl": {"http://h/"}, "token": {"kt"}, "eventTypes": {types}})
	}
	require.Contains(t, consumer("orders", " order.* , ,refund").body, `"EventTypes":"order.*,refund"`)
	consumer("any", "*")
	consumer("none", "nothing")
	s.broadcast("paid", "x", header{"X-Broker-Event-Type": "order.paid"})
	s.broadcast("refund", "x", header{"X-Broker-Event-Type": "refund"})
	s.broadcast("refunds", "x", header{"X-Broker-Event-Type": "refunds"})
	s.broadcast("untyped", "x", nil)

	got := func(consumer string) (ids []string) {
		for _, w := range s.workOf(consumer, "GET", "queued-jobs") {
			ids = append(ids, w.Message.MessageID)
		}
		return ids
	}
	all := []string{"paid", "refund", "refunds", "untyped"}
	require.Equal(t, []string{"paid", "refund"}, got("orders"))
	require.Equal(t, all, got("any"))
	require.Equal(t, all, got("pull"), "a consumer without event types gets all")
	require.Empty(t, got("none"))
	require.Contains(t, s.expect(200, "", "GET", "/channel/ch/consumer/orders/queued-jobs", jobTokens, "").body, `"EventType":"order.paid"`)

	m := s.expect(200, "", "GET", "/channel/ch/message/refunds", nil, "").body
	require.Contains(t, m, `"EventType":"refunds"`)
	require.Contains(t, m, `"ListenerName":"any"`)
	require.NotContains(t, m, `"ListenerName":"orders"`)
	require.NotContains(t, m, `"ListenerName":"none"`)
	status := s.expect(200, "", "GET", "/job-status", nil, "").body
	require.Contains(t, status, `"orders":[{"status":1001,"count":2,`)
	require.NotContains(t, status, `"none"`)
}

// A change of the event types applies to later broadcasts. Existing jobs stay.
func TestChangeOfEventTypes(t *testing.T) {
	s := newSite(t, nil)
	const path = "/channel/ch/consumer/k"
	change := func(types string) {
		t.Helper()
		form := url.Values{"type": {"pull"}, "callbackUrl": {"http://h/"}, "token": {"kt"}, "eventTypes": {types}}.Encode()
		h := formType
		if old := s.do("GET", path, nil, ""); old.status == 200 {
			h = with(h, header{"If-Unmodified-Since": old.header.Get("Last-Modified")})
		}
		s.expect(200, "", "PUT", path, h, form)
	}
	change("a")
	s.broadcast("a1", "x", header{"X-Broker-Event-Type": "a"})
	s.broadcast("b1", "x", header{"X-Broker-Event-Type": "b"})
	change("b")
	s.broadcast("a2", "x", header{"X-Broker-Event-Type": "a"})
	s.broadcast("b2", "x", header{"X-Broker-Event-Type": "b"})
	change("")
	s.broadcast("a3", "x", header{"X-Broker-Event-Type": "a"})
	var ids []string
	for _, w := range s.workOf("k", "POST", "claim?limit=10&wait=5s") {
		ids = append(ids, w.Message.MessageID)
	}
	require.Equal(t, []string{"a1", "b2", "a3"}, ids)
}
