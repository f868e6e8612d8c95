package httpapi_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/broker"
)

const replays = "/channel/ch/consumer/pull/replay"

type replayState struct {
	ID, State, Status                string
	Count, Replayed, Skipped, Failed int
	Rate                             float64
}

// replay waits until a replay is in a state.
func (s *site) replay(location, state string) (r replayState) {
	s.t.Helper()
	require.Eventually(s.t, func() bool {
		s.json(s.expect(200, "", "GET", location, nil, ""), &r)
		return r.State == state
	}, 20*time.Second, 10*time.Millisecond)
	return r
}

func (s *site) count(body string) int {
	s.t.Helper()
	var answer struct{ Count int }
	s.json(s.expect(200, "", "POST", replays, nil, body), &answer)
	return answer.Count
}

// settle delivers or fails the queued jobs.
func (s *site) settle(state string) {
	s.t.Helper()
	for _, w := range s.work("POST", "claim?limit=100&wait=5s") {
		s.expect(202, "", "POST", job+w.ID, jobTokens, fmt.Sprintf(`{"NextState":%q,"ClaimToken":%q}`, state, w.ClaimToken))
	}
}

func TestReplay(t *testing.T) {
	s := newSite(t, func(cfg *broker.Config) { cfg.Seed.Consumers = cfg.Seed.Consumers[:1] })
	for bad, text := range map[string]string{
		``:                       "request body is empty: JSON expected",
		`null`:                   "request body is null: give a JSON object",
		`{"From":"x"}`:           `request body is not the JSON expected: json: unknown field "From"`,
		`{"Since":"yesterday"}`:  `Bad Request: Since: "yesterday" is not a time in RFC 3339, such as 2026-01-02T15:04:05Z`,
		`{"Until":5}`:            "request body is not the JSON expected: Until: give a string in place of the number",
		`{"Rate":"10"}`:          "request body is not the JSON expected: Rate: give a number in place of the string",
		`{"Rate":1e999}`:         "request body is not the JSON expected: Rate: give a number in place of the number 1e999",
		`{"DryRun":"true"}`:      "request body is not the JSON expected: DryRun: give true or false in place of the string",
		`{"Metadata":true}`:      "request body is not the JSON expected: Metadata: give an object in place of the bool",
		`{"Status":"QUEUED"}`:    `Bad Request: Status: "QUEUED" is neither DEAD nor DELIVERED; without one it is both`,
		`{"Rate":0}`:             "Bad Request: Rate: 0: give a number of jobs per second, from 1 to 100000",
		`{"Rate":-1}`:            "Bad Request: Rate: -1: give a number of jobs per second, from 1 to 100000",
		`{"Metadata":{"X-A":1}}`: "request body is not the JSON expected: Metadata: give a string in place of the number",
		`{"Rate":100001}`:        "Bad Request: Rate: 100001: give a number of jobs per second, from 1 to 100000",
		`{"Status":"LOST"}`:      `Bad Request: Status: "LOST" is neither DEAD nor DELIVERED; without one it is both`,
		`{"Since":"2026-01-02T00:00:00Z","Until":"2026-01-01T00:00:00Z"}`: "Bad Request: Until: 2026-01-01T00:00:00Z is not after Since, " +
			"2026-01-02T00:00:00Z",
		`{"Since":"2026-01-02T00:00:00Z","Until":"2026-01-02T00:00:00Z"}`: "Bad Request: Until: 2026-01-02T00:00:00Z is not after Since, " +
			"2026-01-02T00:00:00Z",
	} {
		s.expect(400, text, "POST", replays, nil, bad)
	}
	s.expect(404, "Request resource not found", "POST", "/channel/ch/consumer/none/replay", nil, "{}")
	s.expect(404, "Request resource not found", "GET", replays+"/none", nil, "")
	s.expect(404, "Request resource not found", "DELETE", replays+"/none", nil, "")

	s.broadcast("dead", "x", nil)
	s.settle("DEAD")
	s.broadcast("a", "x", header{"X-Broker-Metadata-Headers": "X-Customer", "X-Customer": "7"})
	s.broadcast("b", "x", header{"X-Broker-Metadata-Headers": "X-Customer", "X-Customer": "8"})
	s.settle("DELIVERED")
	s.broadcast("waits", "x", nil)
	var m struct{ ReceivedAt time.Time }
	s.json(s.expect(200, "", "GET", "/channel/ch/message/b", nil, ""), &m)
	at := m.ReceivedAt.Format(time.RFC3339Nano)
	for spec, want := range map[string]int{
		`{"DryRun":true}`:                                            3,
		`{"DryRun":true,"Status":"DEAD"}`:                            1,
		`{"DryRun":true,"Status":"DELIVERED"}`:                       2,
		`{"DryRun":true,"Metadata":{"x-customer":"7"}}`:              1,
		`{"DryRun":true,"Metadata":{"X-Customer":"7","X-Other":""}}`: 0,
		`{"DryRun":true,"Since":"` + at + `"}`:                       1,
		`{"DryRun":true,"Until":"` + at + `"}`:                       2,
	} {
		require.Eventually(t, func() bool { return s.count(spec) == want }, time.Minute, 10*time.Millisecond, spec)
	}
	require.Len(t, s.work("GET", "queued-jobs"), 1, "a dry run changes nothing")

	started := s.expect(202, "", "POST", replays, nil, `{"Metadata":{"X-Customer":"7"},"Status":"DELIVERED","Rate":7}`)
	location := started.header.Get("Location")
	done := s.replay(location, "DONE")
	require.Equal(t, replayState{ID: done.ID, State: "DONE", Status: "DELIVERED", Count: 1, Replayed: 1, Rate: 7}, done)
	require.Equal(t, replays+"/"+done.ID, location)
	require.Eventually(t, func() bool { return len(s.work("GET", "queued-jobs")) == 2 }, 5*time.Second, 10*time.Millisecond)
	body := s.expect(200, "", "GET", "/channel/ch/consumer/pull/queued-jobs", jobTokens, "").body
	require.Contains(t, body, `"Replay":"`+done.ID+`"`)
	require.Equal(t, "a", s.work("GET", "queued-jobs")[0].Message.MessageID, "with its message's ID, and in its message's place")
	s.expect(204, "", "DELETE", location, nil, "")
	require.Equal(t, "DONE", s.replay(location, "DONE").State, "what has ended is not cancelled")

	// A replay can be for one message.
	s.expect(400, "Bad Request: Message: give it without Since and Until", "POST", replays, nil, `{"Message":"dead","Since":"`+at+`"}`)
	s.expect(404, "Request resource not found", "POST", replays, nil, `{"Message":"none"}`)
	require.Zero(t, s.count(`{"DryRun":true,"Message":"dead","Status":"DELIVERED"}`))
	require.Equal(t, 1, s.count(`{"DryRun":true,"Message":"dead"}`))
	last := s.expect(202, "", "POST", replays, nil, `{"Message":"dead","Status":"DEAD"}`).header.Get("Location")
	require.Equal(t, 1, s.replay(last, "DONE").Replayed)
	require.Eventually(t, func() bool {
		s.turn.Add(1)
		return strings.Contains(s.do("GET", "/channel/ch/message/dead", nil, "").body, `"Status":"QUEUED"`)
	}, 5*time.Second, 10*time.Millisecond)
	type listed struct{ ChannelID, ConsumerID, URL, State, Message string }
	var all struct{ Result []listed }
	require.Eventually(t, func() bool {
		s.json(s.expect(200, "", "GET", "/replays", nil, ""), &all)
		return len(all.Result) == 2
	}, 5*time.Second, 10*time.Millisecond)
	require.Equal(t, []listed{{"ch", "pull", last, "DONE", "dead"}, {"ch", "pull", location, "DONE", ""}}, all.Result)
}

// A cancelled replay queues no more jobs. While a replay runs, no other can start.
func TestReplayIsCancelled(t *testing.T) {
	s := newSite(t, func(cfg *broker.Config) { cfg.Seed.Consumers = cfg.Seed.Consumers[:1] })
	for i := range 20 {
		s.broadcast(fmt.Sprint(i), "x", nil)
	}
	s.settle("DELIVERED")
	require.Eventually(t, func() bool { return s.count(`{"DryRun":true}`) == 20 }, 5*time.Second, 10*time.Millisecond)
	location := s.expect(202, "", "POST", replays, nil, `{"Rate":1}`).header.Get("Location")
	require.Eventually(t, func() bool { return len(s.work("GET", "queued-jobs")) > 0 }, 5*time.Second, 10*time.Millisecond)
	refused := s.expect(409, "the replay or purge "+location+" is running: wait for its end, which GET of that path shows, or cancel it with DELETE", "POST",
		replays, nil, `{}`)
	require.Equal(t, location, refused.header.Get("Location"))
	s.expect(204, "", "DELETE", location, nil, "")
	ended := s.replay(location, "CANCELLED")
	require.Equal(t, 20, ended.Count)
	require.Less(t, len(s.work("GET", "queued-jobs")), 10)
	again := s.expect(202, "", "POST", replays, nil, `{"Rate":1000}`).header.Get("Location")
	rest := s.replay(again, "DONE")
	require.Equal(t, 20, len(s.work("GET", "queued-jobs")))
	require.Equal(t, rest.Count, rest.Replayed)
}

// If several callers start a replay at the same time, exactly one succeeds.
func TestReplaysAtTheSameTime(t *testing.T) {
	s := newSite(t, func(cfg *broker.Config) { cfg.Seed.Consumers = cfg.Seed.Consumers[:1] })
	for i := range 50 {
		s.broadcast(fmt.Sprint(i), "x", nil)
	}
	s.settle("DELIVERED")
	require.Eventually(t, func() bool { return s.count(`{"DryRun":true}`) == 50 }, 5*time.Second, 10*time.Millisecond)
	for range 3 {
		const asked = 8
		answers := make(chan answer, asked)
		for range asked {
			go func() { answers <- s.do("POST", replays, nil, `{"Rate":1}`) }()
		}
		var started string
		locations := map[string]int{}
		for range asked {
			a := <-answers
			locations[a.header.Get("Location")]++
			if a.status != 409 {
				require.Equal(t, 202, a.status, a.body)
				require.Empty(t, started)
				started = a.header.Get("Location")
			}
		}
		require.Equal(t, map[string]int{started: asked}, locations, "who is refused learns which replay runs")
		s.expect(204, "", "DELETE", started, nil, "")
	}
}

// A time that the record of a replay cannot store is refused.
func TestReplayTime(t *testing.T) {
	s := newSite(t, nil)
	for _, body := range []string{`{"Since":"0000-01-01T00:00:00+23:59"}`, `{"Until":"9999-12-31T23:59:59-23:59"}`} {
		s.expect(400, "", "POST", "/channel/ch/consumer/push/replay", header{"Content-Type": "application/json"}, body)
	}
}
