package httpapi_test

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A time that the record of a replay cannot hold is refused.
func TestReplayTime(t *testing.T) {
	s := newSite(t, nil)
	for _, body := range []string{`{"Since":"0000-01-01T00:00:00+23:59"}`, `{"Until":"9999-12-31T23:59:59-23:59"}`} {
		s.expect(400, "", "POST", "/channel/ch/consumer/push/replay", header{"Content-Type": "application/json"}, body)
	}
}

// Where a 201 points to, there is the message, or the ID is refused.
func TestSlashID(t *testing.T) {
	s := newSite(t, nil)
	for _, id := range []string{"/", "//", "a/", "/a"} {
		a := s.do("POST", "/channel/ch/broadcast", with(producer, header{"X-Broker-Message-ID": id}), "x")
		if a.status == 201 {
			require.Equal(t, 200, s.do("GET", a.header.Get("Location"), nil, "").status, id)
		} else {
			require.Equal(t, 400, a.status)
		}
	}
}
