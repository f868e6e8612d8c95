package httpapi_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/broker"
)

// Stored texts are bounded, because every node holds each of them in memory. The error names the field, its size and the limit,
// and does not show the text.
func TestStoredTextsAreBounded(t *testing.T) {
	s := newSite(t, nil)
	for _, tt := range []struct {
		field string
		limit int
	}{{"name", 1 << 10}, {"token", 1 << 10}, {"signingSecret", 1 << 10}, {"callbackUrl", 4 << 10}, {"eventTypes", 4 << 10}, {"headers", 4 << 10}} {
		form := tt.field + "=" + strings.Repeat("x", tt.limit+1)
		s.expect(400, fmt.Sprintf("Bad Request: %s: it has %d bytes: give %d at most", tt.field, tt.limit+1, tt.limit), "PUT",
			"/channel/ch/consumer/long", formType, form)
	}
	for _, path := range []string{"/producer/y", "/channel/y", "/channel/ch/consumer/y", "/channel/ch/access/y"} {
		form := "callbackUrl=http://h/&role=read&name="
		s.expect(400, "Bad Request: name: it has 3145728 bytes: give 1024 at most", "PUT", path, formType, form+strings.Repeat("x", 3<<20))
		s.expect(200, "", "PUT", path, formType, form+strings.Repeat("x", 1<<10))
	}
	for _, path := range []string{"/producer/", "/channel/", "/channel/ch/consumer/", "/channel/ch/access/"} {
		refused := s.expect(400, "", "PUT", path+strings.Repeat("x", 1025), formType, "callbackUrl=http://h/&role=read")
		require.Contains(t, refused.body, "ID: it has 1025 bytes: give 1024 at most")
	}
	tooLong := s.expect(400, "", "POST", "/channel/ch/broadcast", with(producer, header{"X-Broker-Message-ID": strings.Repeat("x", 1025)}), "x")
	require.Contains(t, tooLong.body, "message ID: it has 1025 bytes: give 1024 at most")
	tooLong = s.expect(400, "", "POST", "/channel/ch/broadcast", with(producer,
		header{"X-Broker-Metadata-Headers": "X-Long", "X-Long": strings.Repeat("x", 4<<10)}), "x")
	require.Contains(t, tooLong.body, `metadata header "X-Long": it has 4102 bytes: give 4096 at most`)
}

// A body that a stream cannot store is refused for its size, also if max_payload would allow it.
func TestLargestBody(t *testing.T) {
	s := newSite(t, func(cfg *broker.Config) { cfg.HTTP.MaxBodyBytes = 48 << 20 })
	refused := s.expect(413, "", "POST", "/channel/ch/broadcast", producer, strings.Repeat("x", 33<<20))
	require.Contains(t, refused.body, "the payload has 34603008 bytes, at most")
	s.expect(201, "", "POST", "/channel/ch/broadcast", producer, strings.Repeat("x", 31<<20))
}
