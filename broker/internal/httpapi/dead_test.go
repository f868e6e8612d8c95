package httpapi_test

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/broker"
	"github.com/jetpull/jetpull/test/servertest"
)

type deadState struct {
	ID, URL, Kind, State, By string
	Count, Done              int
	Skipped, Failed          int
	Filter                   map[string]string
}

func (s *site) deadEnded(location, state string) (o deadState) {
	s.t.Helper()
	require.Eventually(s.t, func() bool {
		s.json(s.expect(200, "", "GET", location, nil, ""), &o)
		return o.State == state
	}, 20*time.Second, 10*time.Millisecond)
	return o
}

// deadJobs returns the dead jobs that a query lists, in the order of the list, as CONSUMER/MESSAGE, and the time of the next page.
func (s *site) deadJobs(query string) (jobs []string, next string) {
	s.t.Helper()
	var list struct {
		Result []struct{ ConsumerID, MessageID string }
		Next   string
	}
	s.json(s.expect(200, "", "GET", "/dead-jobs?"+query, nil, ""), &list)
	for _, j := range list.Result {
		jobs = append(jobs, j.ConsumerID+"/"+j.MessageID)
	}
	return jobs, list.Next
}

// Dead jobs of all consumers are listed, requeued and purged by a filter.
func TestDeadJobsOfAllConsumers(t *testing.T) {
	s := newSite(t, func(cfg *broker.Config) { cfg.Dispatch.MaxRetry = 0 })
	_, next := s.deadJobs("")
	require.Empty(t, next)
	for _, id := range []string{"a", "b"} {
		s.broadcast(id, "x", nil)
		s.settle("DEAD")
		require.Eventually(t, func() bool { jobs, _ := s.deadJobs("message=" + id); return len(jobs) == 2 }, 10*time.Second, 10*time.Millisecond)
	}
	var all struct {
		Result []struct {
			ID, ChannelID, ConsumerID, MessageID, ProducedBy, Reason string
			DeadSince                                                time.Time
			StatusCode, Attempts                                     int
		}
	}
	s.json(s.expect(200, "", "GET", "/dead-jobs", nil, ""), &all)
	require.Len(t, all.Result, 4)
	since := all.Result[1].DeadSince // of the jobs of b
	reasons := map[string]string{}
	for i, j := range all.Result {
		require.False(t, i > 0 && j.DeadSince.After(all.Result[i-1].DeadSince))
		require.Equal(t, []string{"ch", "pr"}, []string{j.ChannelID, j.ProducedBy})
		reasons[j.ConsumerID] = fmt.Sprint(j.Reason, " ", j.Attempts)
	}
	require.Equal(t, map[string]string{"pull": "GIVEN_UP 0", "push": "NO_ANSWER 1"}, reasons)
	for query, want := range map[string]int{
		"consumer=pull": 2, "consumer=ch/push": 2, "consumer=other/push": 0, "producer=pr": 4, "producer=none": 0, "message=a": 2, "reason=NO_ANSWER": 2,
		"reason=REFUSED":                 0,
		"consumer=pull&reason=NO_ANSWER": 0, "since=" + since.Format(time.RFC3339Nano): 2, "until=" + since.Format(time.RFC3339Nano): 2,
		"since=1600-01-01T00:00:00Z&until=9000-01-01T00:00:00Z": 4,
	} {
		jobs, _ := s.deadJobs(query)
		require.Len(t, jobs, want, query)
	}
	var paged []string
	for next = time.Now().Add(time.Hour).Format(time.RFC3339); next != ""; {
		var jobs []string
		jobs, next = s.deadJobs("limit=1&until=" + url.QueryEscape(next))
		paged = append(paged, jobs...)
	}
	require.Len(t, paged, 4)
	s.expect(400, `Bad Request: Reason: "PERMANENT" is none of REFUSED, NO_ANSWER, GIVEN_UP`, "GET", "/dead-jobs?reason=PERMANENT", nil, "")
	s.expect(400, `Bad Request: Since: "yesterday" is not a time in RFC 3339, such as 2026-01-02T15:04:05Z`, "POST", "/dead-jobs/requeue", nil,
		`{"Since":"yesterday"}`)

	var counted struct{ Count int }
	s.json(s.expect(200, "", "POST", "/dead-jobs/requeue", nil, `{"Message":"a","DryRun":true}`), &counted)
	require.Equal(t, 2, counted.Count)
	jobs, _ := s.deadJobs("")
	require.Len(t, jobs, 4, "a dry run changes nothing")

	// With a low rate the operation runs until it is cancelled, and another one is refused meanwhile.
	location := s.expect(202, "", "POST", "/dead-jobs/purge", nil, `{"Rate":1}`).header.Get("Location")
	refused := s.expect(409, "the operation "+location+" is running: wait for its end, which GET of that path shows, or cancel it with DELETE", "POST",
		"/dead-jobs/purge", nil, `{}`)
	require.Equal(t, location, refused.header.Get("Location"))
	s.expect(204, "", "DELETE", location, nil, "")
	cancelled := s.deadEnded(location, "CANCELLED")
	require.Equal(t, 4, cancelled.Count)
	require.Less(t, cancelled.Done, 4)

	location = s.expect(202, "", "POST", "/dead-jobs/requeue", nil, `{"Consumer":"pull","Message":"b","Rate":1000}`).header.Get("Location")
	ended := s.deadEnded(location, "DONE")
	require.Equal(t, deadState{ended.ID, location, "requeue", "DONE", "", 1, 1, 0, 0, map[string]string{"Consumer": "pull", "Message": "b"}}, ended)
	require.Eventually(t, func() bool { return len(s.work("GET", "queued-jobs")) == 1 }, 5*time.Second, 10*time.Millisecond)
	location = s.expect(202, "", "POST", "/dead-jobs/purge", nil, `{"Reason":"NO_ANSWER","Rate":1000}`).header.Get("Location")
	require.Zero(t, s.deadEnded(location, "DONE").Skipped)
	jobs, _ = s.deadJobs("consumer=push")
	require.Empty(t, jobs)
	var operations struct{ Result []deadState }
	s.json(s.expect(200, "", "GET", "/dead-jobs/operations", nil, ""), &operations)
	require.Len(t, operations.Result, 3)
	require.Equal(t, location, operations.Result[0].URL)
	var replays struct{ Result []any }
	s.json(s.expect(200, "", "GET", "/replays", nil, ""), &replays)
	require.Empty(t, replays.Result)
	s.expect(404, "Request resource not found", "GET", "/dead-jobs/operations/none", nil, "")
	s.expect(404, "Request resource not found", "DELETE", "/dead-jobs/operations/none", nil, "")
}

// A record that cannot be decoded hides no other job from the list, and ends no operation.
func TestDeadJobWhoseRecordCannotBeRead(t *testing.T) {
	srv := servertest.RunServer(t)
	s := newSite(t, func(cfg *broker.Config) {
		cfg.NATS.URL, cfg.Dispatch.MaxRetry = srv.URL(), 0
		cfg.Seed.Consumers = cfg.Seed.Consumers[1:] // that of type push
	})
	for _, id := range []string{"a", "b", "c"} {
		s.broadcast(id, "x", nil)
		require.Eventually(t, func() bool { jobs, _ := s.deadJobs("message=" + id); return len(jobs) == 1 }, 10*time.Second, 10*time.Millisecond)
	}
	js, err := jetstream.New(srv.Connect(t))
	require.NoError(t, err)
	jobs, err := js.Stream(t.Context(), "broker_jobs")
	require.NoError(t, err)
	record, err := jobs.GetMsg(t.Context(), 2)
	require.NoError(t, err)
	_, err = js.Publish(t.Context(), record.Subject, []byte("garbage"))
	require.NoError(t, err)
	listed, _ := s.deadJobs("")
	require.ElementsMatch(t, []string{"push/a", "push/b", "push/c"}, listed)

	const consumer = "/channel/ch/consumer/push"
	for _, list := range []string{"/dlq", "/jobs?status=DEAD"} {
		require.Equal(t, 3, strings.Count(s.expect(200, "", "GET", consumer+list, with(jobTokens, nil), "").body, `"DEAD"`), list)
	}
	replayed := s.replay(s.expect(202, "", "POST", consumer+"/replay", nil, `{"Status":"DEAD"}`).header.Get("Location"), "DONE")
	require.Equal(t, []int{3, 2, 0, 1}, []int{replayed.Count, replayed.Replayed, replayed.Skipped, replayed.Failed})
	allDead := func() bool { listed, _ = s.deadJobs(""); return len(listed) == 3 }
	require.Eventually(t, allDead, 10*time.Second, 10*time.Millisecond)
	s.expect(202, "", "POST", consumer+"/dlq", formType, "requeue=kt")
	require.Eventually(t, allDead, 10*time.Second, 10*time.Millisecond)

	location := s.expect(202, "", "POST", "/dead-jobs/requeue", nil, `{"Rate":1000}`).header.Get("Location")
	ended := s.deadEnded(location, "DONE")
	require.Equal(t, []int{3, 2, 0, 1}, []int{ended.Count, ended.Done, ended.Skipped, ended.Failed})
}
