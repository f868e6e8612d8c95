package httpapi_test

import (
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/broker"
)

// Without force, a channel with consumers or scheduled messages is not deleted. With force it is deleted with all that is in it, and leaves
// nothing for one that gets its ID.
func TestDeleteChannel(t *testing.T) {
	s := newSite(t, nil)
	later := header{"X-Broker-Scheduled-For": time.Now().Add(time.Hour).UTC().Format(time.RFC3339)}
	s.broadcast("m1", "x", nil)
	s.broadcast("m2", "x", nil)
	s.broadcast("m3", "x", later)
	s.put("/channel/ch/access/team", url.Values{"role": {"manage"}})
	s.put("/channel/other", nil)
	s.put("/channel/other/consumer/k", url.Values{"callbackUrl": {"http://127.0.0.1:9/"}, "type": {"pull"}})
	require.Len(t, s.work("POST", "claim?limit=1&wait=10s"), 1)
	s.put("/channel/ch/consumer/push2", url.Values{"callbackUrl": {"http://127.0.0.1:9/"}, "type": {"pull"}}) // after the messages: no jobs
	s.expect(200, "", "POST", "/channel/ch/consumer/push/pause", nil, "")

	unmodified := header{"If-Unmodified-Since": s.do("GET", "/channel/ch", nil, "").header.Get("Last-Modified")}
	s.expect(404, "", "DELETE", "/channel/none", unmodified, "")
	s.expect(400, "", "DELETE", "/channel/ch", nil, "")
	s.expect(412, "", "DELETE", "/channel/ch?force=true", header{"If-Unmodified-Since": "x"}, "")
	s.expect(400, `invalid query parameter: force "yes": give true or false`, "DELETE", "/channel/ch?force=yes", unmodified, "")
	const waiting = "the channel is in use: it has 3 consumers and 1 scheduled messages: delete them with it by ?force=true"
	s.expect(409, waiting, "DELETE", "/channel/ch", unmodified, "")
	s.expect(409, waiting, "DELETE", "/channel/ch?force=false", unmodified, "")
	require.Len(t, s.work("POST", "claim?limit=1&wait=10s"), 1, "nothing was deleted")

	s.expect(204, "", "DELETE", "/channel/ch?force=true", unmodified, "")
	for _, path := range []string{"", "/consumer/pull", "/message/m1", "/scheduled-message/m3"} {
		s.expect(404, "", "GET", "/channel/ch"+path, nil, "")
	}
	s.expect(404, "", "DELETE", "/channel/ch?force=true", unmodified, "")
	s.expect(200, "", "GET", "/channel/other/consumer/k", nil, "")

	modified := s.put("/channel/ch", url.Values{"token": {"ct"}}).header.Get("Last-Modified")
	require.Contains(t, s.expect(200, "", "GET", "/channel/ch/access", nil, "").body, `"Result":[]`)
	require.JSONEq(t, `{"counts":{}}`, s.expect(200, "", "GET", "/channel/ch/messages-status", nil, "").body)
	s.broadcast("m1", "the ID is free again", nil)
	s.broadcast("m3", "this one too", later)
	s.expect(409, "the channel is in use: it has 0 consumers and 1 scheduled messages: delete them with it by ?force=true",
		"DELETE", "/channel/ch", header{"If-Unmodified-Since": modified}, "")
	s.expect(204, "", "DELETE", "/channel/ch/scheduled-message/m3", producer, "")
	require.Eventually(t, func() bool { // another node may not have seen yet that the scheduled message is gone
		return s.do("DELETE", "/channel/ch", header{"If-Unmodified-Since": modified}, "").status == 204
	}, 10*time.Second, 10*time.Millisecond)
}

// Only the admin token deletes channels and producers, and what a producer has broadcast or scheduled stays.
func TestDeleteProducer(t *testing.T) {
	s := newSite(t, func(c *broker.Config) { c.Admin.Token = "at" })
	admin := header{"X-Broker-Admin-Token": "at"}
	s.broadcast("m", "x", nil)
	s.broadcast("later", "x", header{"X-Broker-Scheduled-For": time.Now().Add(time.Hour).UTC().Format(time.RFC3339)})
	var team struct{ Token string }
	s.json(s.expect(200, "", "PUT", "/channel/ch/access/team", with(formType, admin), "role=manage"), &team)
	unmodified := header{"If-Unmodified-Since": s.do("GET", "/producer/pr", admin, "").header.Get("Last-Modified")}
	s.expect(401, "", "DELETE", "/producer/pr", unmodified, "")
	s.expect(401, "", "DELETE", "/channel/ch?force=true", unmodified, "")
	s.expect(403, "the access token has the role manage: this needs the admin token", "DELETE", "/channel/ch?force=true",
		header{"X-Broker-Admin-Token": team.Token}, "")
	s.expect(204, "", "DELETE", "/producer/pr", with(admin, unmodified), "")
	s.expect(404, "", "GET", "/producer/pr", admin, "")
	s.expect(401, "producer could not be found", "POST", "/channel/ch/broadcast", producer, "x")
	require.Contains(t, s.expect(200, "", "GET", "/channel/ch/message/m", admin, "").body, `"ProducedBy":"pr"`)
	require.Contains(t, s.expect(200, "", "GET", "/channel/ch/scheduled-message/later", admin, "").body, `"status":"SCHEDULED"`)
}
