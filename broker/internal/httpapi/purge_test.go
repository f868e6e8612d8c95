package httpapi_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/broker"
)

const purges = "/channel/ch/consumer/pull/purge"

// A purge removes the jobs that are queued when it begins: not one that a worker has, one that is settled, and none of a later message.
func TestPurgeOfQueuedJobs(t *testing.T) {
	s := newSite(t, func(cfg *broker.Config) { cfg.Seed.Consumers = cfg.Seed.Consumers[:1] })
	s.expect(400, `request body is not the JSON expected: json: unknown field "Status"`, "POST", purges, nil, `{"Status":"DEAD"}`)
	s.expect(400, "Bad Request: Rate: 0: give a number of jobs per second, from 1 to 100000", "POST", purges, nil, `{"Rate":0}`)
	s.expect(404, "Request resource not found", "POST", "/channel/ch/consumer/none/purge", nil, "{}")

	s.broadcast("dead", "x", nil)
	s.settle("DEAD")
	s.broadcast("claimed", "x", nil)
	claimed := s.work("POST", "claim?limit=1&wait=5s")
	require.Len(t, claimed, 1)
	for i := range 30 {
		s.broadcast(fmt.Sprintf("m%d", i), "x", nil)
	}
	var count struct{ Count int }
	s.json(s.expect(200, "", "POST", purges, nil, `{"DryRun":true}`), &count)
	require.Equal(t, 30, count.Count)
	require.Len(t, s.work("GET", "queued-jobs?limit=100"), 30, "a dry run changes nothing")

	location := s.expect(202, "", "POST", purges, nil, `{"Rate":20}`).header.Get("Location")
	s.broadcast("later", "x", nil)
	for _, path := range []string{purges, replays} {
		s.expect(409, "the replay or purge "+location+" is running: wait for its end, which GET of that path shows, or cancel it with DELETE", "POST",
			path, nil, "{}")
	}
	var done struct {
		ID, Kind, State                  string
		Count, Replayed, Purged, Skipped int
	}
	s.replay(location, "DONE")
	s.json(s.expect(200, "", "GET", location, nil, ""), &done)
	require.Equal(t, "purge-queued", done.Kind)
	require.Equal(t, []int{30, 30, 0, 0}, []int{done.Count, done.Purged, done.Skipped, done.Replayed})
	require.Contains(t, s.expect(200, "", "GET", "/replays", nil, "").body, `"Kind":"purge-queued"`)

	left := s.work("GET", "queued-jobs?limit=100")
	require.Len(t, left, 1)
	require.Equal(t, "later", left[0].Message.MessageID)
	s.expect(202, "", "POST", job+claimed[0].ID, jobTokens, fmt.Sprintf(`{"NextState":"DELIVERED","ClaimToken":%q}`, claimed[0].ClaimToken))
	require.Equal(t, 2, s.count(`{"DryRun":true}`), "the dead one and the delivered one; those that were purged cannot come back")
}

// A cancelled purge keeps the jobs that it has not reached.
func TestPurgeIsCancelled(t *testing.T) {
	s := newSite(t, func(cfg *broker.Config) { cfg.Seed.Consumers = cfg.Seed.Consumers[:1] })
	for i := range 30 {
		s.broadcast(fmt.Sprintf("m%d", i), "x", nil)
	}
	location := s.expect(202, "", "POST", purges, nil, `{"Rate":1}`).header.Get("Location")
	s.expect(204, "", "DELETE", location, nil, "")
	s.replay(location, "CANCELLED")
	var now struct{ Purged int }
	require.Eventually(t, func() bool {
		s.json(s.expect(200, "", "GET", location, nil, ""), &now)
		return len(s.work("GET", "queued-jobs?limit=100")) == 30-now.Purged
	}, time.Minute, 10*time.Millisecond)
	require.Less(t, now.Purged, 30)
}
