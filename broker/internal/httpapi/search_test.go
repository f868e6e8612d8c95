package httpapi_test

import (
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Messages are found by ID, event type, metadata and time, newest first, in pages that leave none out.
func TestSearchMessages(t *testing.T) {
	s := newSite(t, nil)
	var ids []string
	for i, kind := range []string{"order.paid", "order.sent", "refund", "order.paid", ""} {
		id := string(rune('a' + i))
		ids = append(ids, id)
		h := header{"X-Broker-Metadata-Headers": "x-tenant,X-Odd", "X-Tenant": []string{"acme", "other"}[i%2], "X-Broker-Event-Type": kind}
		if i == 4 {
			h["X-Odd"] = "a: b"
		}
		s.broadcast(id, "x", h)
	}
	times := map[string]string{}
	for _, id := range ids {
		var m struct{ ReceivedAt time.Time }
		s.json(s.expect(200, "", "GET", "/channel/ch/message/"+id, nil, ""), &m)
		times[id] = m.ReceivedAt.Format(time.RFC3339Nano)
	}
	search := func(path string) (found, next string) {
		t.Helper()
		var list struct {
			Result []string
			Pages  map[string]string
		}
		s.json(s.expect(200, "", "GET", path, nil, ""), &list)
		for _, u := range list.Result {
			found += strings.TrimPrefix(u, "/channel/ch/message/")
		}
		require.NotContains(t, list.Pages, "previous")
		return found, list.Pages["next"]
	}
	for query, want := range map[string]string{
		"limit=100":            "edcba",
		"id=c":                 "c",
		"id=none":              "",
		"id=c&eventType=other": "",
		"id=c&metadata=X-Tenant:acme&eventType=ref*":   "c",
		"eventType=order.*":                            "dba",
		"eventType=refund,order.sent":                  "cb",
		"metadata=x-tenant:acme":                       "eca",
		"metadata=X-Tenant:+acme&metadata=X-Odd:a:+b":  "e",
		"metadata=X-Tenant:ac":                         "",
		"since=" + times["c"]:                          "edc",
		"until=" + times["c"]:                          "ba",
		"since=" + times["b"] + "&until=" + times["d"]: "cb",
		"since=2100-01-01T00:00:00Z":                   "",
		"eventType=order.paid&metadata=X-Tenant:other": "d",
		"status=102&eventType=order.sent":              "b",
		"status=101&eventType=order.sent":              "",
	} {
		found, _ := search("/channel/ch/messages?" + query)
		require.Equal(t, want, found, query)
	}
	all, path, pages := "", "/channel/ch/messages?eventType=order.*&limit=1", 0
	for ; path != ""; pages++ {
		var found string
		found, path = search(path)
		all += found
	}
	require.Equal(t, "dba", all)
	require.LessOrEqual(t, pages, 4)
	for query, want := range map[string]string{
		"limit=0":                             `invalid query parameter: limit "0": give a whole number of 1 or more`,
		"limit=x":                             `invalid query parameter: limit "x": give a whole number of 1 or more`,
		"since=now":                           `Bad Request: Since: "now" is not a time in RFC 3339, such as 2026-01-02T15:04:05Z`,
		"metadata=X-Tenant":                   `invalid query parameter: metadata "X-Tenant": give NAME:VALUE, such as X-Tenant:acme`,
		"metadata=:a":                         `invalid query parameter: metadata ":a": give NAME:VALUE, such as X-Tenant:acme`,
		"eventType=" + url.QueryEscape("a b"): `invalid query parameter: eventType: event type "a b" has ' ': give visible ASCII without comma, asterisk and brace; a pattern may end in one asterisk`,
		"limit=1&next=x":                      `invalid query parameter: next "x": give what a link of a page before has`,
		"limit=1&previous=MHwx":               `invalid query parameter: previous: a search has no previous pages, give next`,
	} {
		s.expect(400, want, "GET", "/channel/ch/messages?"+query, nil, "")
	}
	s.expect(404, "", "GET", "/channel/none/messages?id=a", nil, "")
}
