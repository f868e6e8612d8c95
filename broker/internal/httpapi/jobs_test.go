package httpapi_test

import (
	"fmt"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/broker"
	"github.com/jetpull/jetpull/broker/internal/domain"
)

func TestPullChecksInOrder(t *testing.T) {
	s := newSite(t, nil)
	s.put("/channel/ch/consumer/other", url.Values{"type": {"pull"}, "callbackUrl": {"http://h/"}, "token": {"kt"}})
	s.broadcast("m", "x", nil)
	mine := s.work("GET", "queued-jobs")[0].ID
	channel := header{"X-Broker-Channel-Token": "ct"}
	for _, r := range []struct{ method, rest string }{
		{"GET", "/queued-jobs"},
		{"POST", "/claim"},
		{"POST", "/jobs"},
		{"GET", "/job/" + mine},
		{"POST", "/job/" + mine},
		{"POST", "/job/" + mine + "/requeue-dead-job"},
		{"POST", "/job/" + mine + "/extend"},
	} {
		s.expect(404, "Request resource not found", r.method, "/channel/none/consumer/pull"+r.rest, nil, "")
		s.expect(403, "channel token does not match", r.method, "/channel/ch/consumer/pull"+r.rest, nil, "")
		s.expect(401, "consumer could not be found", r.method, "/channel/ch/consumer/none"+r.rest, channel, "")
		s.expect(403, "consumer token does not match", r.method, "/channel/ch/consumer/pull"+r.rest, channel, "")
		s.expect(412, "consumer not pull based", r.method, "/channel/ch/consumer/push"+r.rest, jobTokens, "")
		if !strings.HasPrefix(r.rest, "/job/") {
			continue
		}
		for _, unknown := range []string{"x", "00000000000000000000", domain.JobID{Seq: 1, Consumer: 1 << 30}.String()} {
			s.expect(404, "job could not be found", r.method, strings.Replace("/channel/ch/consumer/pull"+r.rest, mine, unknown, 1), jobTokens, "")
		}
		s.expect(401, "job could not be found", r.method, "/channel/ch/consumer/other"+r.rest, jobTokens, "")
	}
	for _, value := range []string{"-1", "x", "1.5"} {
		for route, method := range map[string]string{"queued-jobs": "GET", "claim": "POST"} {
			s.expect(400, fmt.Sprintf("invalid query parameter: limit %q: give a whole number of 0 or more", value), method,
				"/channel/ch/consumer/pull/"+route+"?limit="+value, jobTokens, "")
		}
	}
	for _, value := range []string{"x", "-1s", "-1", "1.5"} {
		for _, r := range []struct{ method, path, name string }{{"GET", "queued-jobs", "wait"}, {"POST", "claim", "wait"}, {"POST", "claim", "timeout"}} {
			s.expect(400, fmt.Sprintf("invalid query parameter: %s %q: give a time such as 20s, or a whole number of seconds, 0 or more", r.name, value),
				r.method, "/channel/ch/consumer/pull/"+r.path+"?"+r.name+"="+value, jobTokens, "")
		}
	}
	require.Equal(t, "{\"Result\":[]}\n", s.expect(200, "", "GET", "/channel/ch/consumer/pull/queued-jobs?limit=0", jobTokens, "").body)
}

func TestQueuedJobsLimits(t *testing.T) {
	s := newSite(t, nil)
	for i := range 110 {
		s.broadcast(fmt.Sprint(i), "x", nil)
	}
	require.Len(t, s.work("GET", "queued-jobs"), 25)
	require.Len(t, s.work("GET", "queued-jobs?limit=1000"), 100)
	work := s.work("GET", "queued-jobs?limit=3")
	require.Len(t, work, 3)
	require.Equal(t, "0", work[0].Message.MessageID, "the oldest is first within a priority")
}

func TestTransitions(t *testing.T) {
	s := newSite(t, nil)
	s.broadcast("m", "x", nil)
	id := s.work("GET", "queued-jobs")[0].ID
	state := func(body string) func(status int, text string) {
		return func(status int, text string) {
			t.Helper()
			s.expect(status, text, "POST", job+id, jobTokens, body)
		}
	}
	state("")(400, "request body is empty: JSON expected")
	for bad, text := range map[string]string{
		"{":               "request body is not the JSON expected: unexpected EOF",
		"[]":              "request body is not the JSON expected: give an object in place of the array",
		`{"NextState":5}`: "request body is not the JSON expected: NextState: give a string in place of the number",
		`{"NextState":"INFLIGHT","IncrementalTimeout":-1}`: "request body is not the JSON expected: IncrementalTimeout: give a whole number of " +
			"0 or more in place of the number -1",
		`{"NextState":"INFLIGHT","IncrementalTimeout":1.5}`: "request body is not the JSON expected: IncrementalTimeout: give a whole number of " +
			"0 or more in place of the number 1.5",
		`{"NextState":"INFLIGHT","IncrementalTimeout":99999999}`: "IncrementalTimeout is too long: 99999999 seconds: give at most 604800",
		`{"NextState":"INFLIGHT","IncrementalTimeout":"seconds"}`: "request body is not the JSON expected: IncrementalTimeout: give a whole number of " +
			"0 or more in place of the string",
		`{"NextState":"INFLIGHT"} {}`: "request body is not the JSON expected: more than one JSON value",
	} {
		state(bad)(400, text)
	}
	state(`{"NextState":"LOST"}`)(400, `invalid transition request: NextState "LOST": give INFLIGHT, DELIVERED or DEAD`)
	state(`{"NextState":"INFLIGHT","Other":1}`)(400, `request body is not the JSON expected: json: unknown field "Other"`)
	state(`{"NextState":"DELIVERED"}`)(400, "invalid transition request: NextState DELIVERED, and the job is QUEUED: give INFLIGHT")
	state(`{"NextState":"DELIVERED","IncrementalTimeout":5}`)(400,
		"timeout provided with invalid state: IncrementalTimeout of 5s with NextState DELIVERED, and the job is QUEUED: give it with INFLIGHT for a "+
			"job that is not INFLIGHT, or extend the claim")
	state(`{"NextState":"QUEUED"}`)(202, "")
	state(`{"NextState":"INFLIGHT","IncrementalTimeout":100}`)(202, "")
	require.Empty(t, s.work("GET", "queued-jobs"))
	state(`{"NextState":"INFLIGHT","IncrementalTimeout":100}`)(400,
		"timeout provided with invalid state: IncrementalTimeout of 1m40s with NextState INFLIGHT, and the job is INFLIGHT: give it with INFLIGHT for "+
			"a job that is not INFLIGHT, or extend the claim")
	state(`{"NextState":"INFLIGHT"}`)(202, "")
	state(`{"NextState":"QUEUED"}`)(400, "invalid transition request: NextState QUEUED, and the job is INFLIGHT: give DELIVERED or DEAD")
	state(`{"NextState":"DEAD"}`)(202, "")
	var detail struct{ Status, MessageURL, ChannelURL, ConsumerURL, ProducerURL, JobRequeueURL string }
	s.json(s.expect(200, "", "GET", job+id, jobTokens, ""), &detail)
	require.Equal(t, "DEAD", detail.Status)
	require.Equal(t, job+id+"/requeue-dead-job", detail.JobRequeueURL)
	require.Equal(t, "/producer/pr", detail.ProducerURL)
	state(`{"NextState":"INFLIGHT"}`)(202, "")
	s.expect(400, "job could not be found", "POST", job+id+"/requeue-dead-job", jobTokens, "")
	state(`{"NextState":"DEAD"}`)(202, "")
	s.expect(202, "", "POST", job+id+"/requeue-dead-job", jobTokens, "")
	state(`{"NextState":"INFLIGHT"}`)(202, "")
	state(`{"NextState":"DELIVERED"}`)(202, "")
	state(`{"NextState":"INFLIGHT"}`)(400, "invalid transition request: NextState INFLIGHT, and the job is DELIVERED: give none, a job that is "+
		"DELIVERED stays so")
	state(`{"NextState":"DELIVERED"}`)(202, "")
}

func TestClaims(t *testing.T) {
	s := newSite(t, nil)
	start := time.Now()
	require.Empty(t, s.work("POST", "claim?wait=50ms"))
	require.GreaterOrEqual(t, time.Since(start), 50*time.Millisecond)
	waiting := make(chan []workItem, 1)
	go func() { waiting <- s.work("POST", "claim?limit=5&wait=20s") }()
	s.broadcast("m", "x", nil)
	claimed := <-waiting
	require.Len(t, claimed, 1)
	c := claimed[0]
	require.NotEmpty(t, c.ClaimToken)
	require.Empty(t, s.work("POST", "claim"))
	require.Empty(t, s.work("GET", "queued-jobs"))

	send := func(status int, next, token string) {
		t.Helper()
		s.expect(status, "", "POST", job+c.ID, jobTokens, fmt.Sprintf(`{"NextState":%q,"ClaimToken":%q}`, next, token))
	}
	send(409, "DELIVERED", "somebody")
	s.expect(409, "", "POST", job+c.ID+"/extend", jobTokens, `{"ClaimToken":"somebody"}`)
	var extended struct{ ClaimExpiresAt time.Time }
	s.json(s.expect(200, "", "POST", job+c.ID+"/extend", jobTokens, `{"ClaimToken":"`+c.ClaimToken+`","IncrementalTimeout":60}`), &extended)
	require.Greater(t, extended.ClaimExpiresAt.Sub(c.ClaimExpiresAt), 50*time.Second)
	send(202, "DELIVERED", c.ClaimToken)
	send(202, "DELIVERED", c.ClaimToken)
	send(409, "DEAD", c.ClaimToken)
	s.expect(400, "", "POST", job+c.ID+"/extend", jobTokens, `{}`)
	s.expect(400, `request body is not the JSON expected: json: unknown field "a"`, "POST", job+c.ID+"/extend", jobTokens, `{"a":1}`)
	s.expect(400, "request body is null: give a JSON object", "POST", job+c.ID+"/extend", jobTokens, `null`)

	listening := make(chan []workItem, 1)
	go func() { listening <- s.work("GET", "queued-jobs?wait=20s") }()
	s.broadcast("n", "x", nil)
	require.Len(t, <-listening, 1)
}

// Each transition of a batch is answered as it would be alone.
func TestBatchOfTransitions(t *testing.T) {
	s := newSite(t, nil)
	s.put("/channel/ch/consumer/other", url.Values{"type": {"pull"}, "callbackUrl": {"http://h/"}, "token": {"kt"}})
	const batch = "/channel/ch/consumer/pull/jobs"
	for i := range 101 {
		s.broadcast(fmt.Sprint(i), "x", nil)
	}
	type result struct {
		ID     string
		Status int
		Error  string
	}
	send := func(items ...string) []result {
		t.Helper()
		var answer struct{ Result []result }
		s.json(s.expect(200, "", "POST", batch, jobTokens, `{"Transitions":[`+strings.Join(items, ",")+`]}`), &answer)
		return answer.Result
	}
	item := func(id, next, more string) string { return fmt.Sprintf(`{"ID":%q,"NextState":%q%s}`, id, next, more) }

	claimed := s.work("POST", "claim?limit=100")
	require.Len(t, claimed, 100)
	var all []string
	for _, c := range claimed {
		all = append(all, item(c.ID, "DELIVERED", fmt.Sprintf(`,"ClaimToken":%q`, c.ClaimToken)))
	}
	for i, r := range send(all...) {
		require.Equal(t, result{claimed[i].ID, 202, ""}, r)
	}

	queued := s.work("GET", "queued-jobs")[0].ID
	theirs := s.workOf("other", "GET", "queued-jobs")[0].ID
	require.Equal(t, []result{
		{claimed[0].ID, 202, ""},
		{claimed[1].ID, 409, s.expect(409, "", "POST", job+claimed[1].ID, jobTokens, `{"NextState":"DEAD","ClaimToken":"x"}`).body},
		{claimed[2].ID, 400, "invalid transition request: NextState INFLIGHT, and the job is DELIVERED: give none, a job that is DELIVERED stays so"},
		{"x", 404, "job could not be found"},
		{theirs, 401, "job could not be found"},
		{claimed[3].ID, 400, "timeout provided with invalid state: IncrementalTimeout of 5s with NextState DEAD, and the job is DELIVERED: give it " +
			"with INFLIGHT for a job that is not INFLIGHT, or extend the claim"},
		{queued, 202, ""},
	}, send(
		item(claimed[0].ID, "DELIVERED", ""), item(claimed[1].ID, "DEAD", `,"ClaimToken":"x"`), item(claimed[2].ID, "INFLIGHT", ""),
		item("x", "DEAD", ""), item(theirs, "INFLIGHT", ""), item(claimed[3].ID, "DEAD", `,"IncrementalTimeout":5`),
		item(queued, "INFLIGHT", `,"IncrementalTimeout":5`),
	))

	for _, none := range []string{`{}`, `{"Transitions":null}`, `{"Transitions":[]}`} {
		s.expect(400, "Transitions is empty: give 1 to 100 of them", "POST", batch, jobTokens, none)
	}
	for bad, text := range map[string]string{
		``:        "request body is empty: JSON expected",
		`null`:    "request body is null: give a JSON object",
		`{"a":1}`: `request body is not the JSON expected: json: unknown field "a"`,
		`{"Transitions":[{"ID":"x","State":"DEAD"}]}`: `request body is not the JSON expected: json: unknown field "State"`,
		`{"Transitions":{}}`:                          "request body is not the JSON expected: Transitions: give an array in place of the object",
		`{"Transitions":[5]}`:                         "request body is not the JSON expected: Transitions: give an object in place of the number",
		`{"Transitions":[{"ID":5}]}`:                  "request body is not the JSON expected: ID: give a string in place of the number",
		`{"Transitions":[{"NextState":5}]}`:           "request body is not the JSON expected: NextState: give a string in place of the number",
	} {
		s.expect(400, text, "POST", batch, jobTokens, bad)
	}
	s.expect(400, `job "x" has two transitions: send one after the other`, "POST", batch, jobTokens,
		`{"Transitions":[`+item("x", "DEAD", "")+","+item("x", "DEAD", "")+`]}`)
	for i := range 101 {
		all = append(all[:i], item(fmt.Sprint(i), "DEAD", ""))
	}
	s.expect(400, "101 transitions: at most 100 are taken at a time", "POST", batch, jobTokens, `{"Transitions":[`+strings.Join(all, ",")+`]}`)
}

func TestDeadLetters(t *testing.T) {
	s := newSite(t, func(c *broker.Config) { c.Dispatch.MaxRetry = 1 })
	kill := func(id string) {
		t.Helper()
		for _, state := range []string{"INFLIGHT", "DEAD"} {
			s.expect(202, "", "POST", job+id, jobTokens, `{"NextState":"`+state+`"}`)
		}
	}
	const dlq = "/channel/ch/consumer/pull/dlq"
	ids := map[string]string{}
	for _, m := range []string{"a", "b"} {
		s.broadcast(m, "x", nil)
	}
	for _, w := range s.work("GET", "queued-jobs") {
		ids[w.Message.MessageID] = w.ID
		kill(w.ID)
	}
	kill(ids["a"]) // one retry: exhausted
	var list struct {
		DeadJobs []struct{ Status, MessageURL, JobRequeueURL string }
		Pages    map[string]string
	}
	s.json(s.expect(200, "", "GET", dlq, nil, ""), &list)
	require.Len(t, list.DeadJobs, 2)
	require.Equal(t, "/channel/ch/message/a", list.DeadJobs[0].MessageURL, "the newest is first")
	require.Contains(t, s.expect(200, "", "GET", "/dlq-status", nil, "").body,
		`{"channelId":"ch","channelName":"The channel","consumerId":"pull","consumerName":"Puller","deadCount":2}`)
	require.Contains(t, s.expect(200, "", "GET", "/metrics", nil, "").body, `dead_job_count{channel="ch",consumer="pull"} 2`)
	var counts map[string]map[string][]struct{ Status, Count int }
	s.json(s.expect(200, "", "GET", "/job-status", nil, ""), &counts)
	require.Equal(t, 1004, counts["ch"]["pull"][0].Status)
	require.Equal(t, 2, counts["ch"]["pull"][0].Count)

	s.expect(403, "channel token does not match", "DELETE", dlq, nil, "")
	s.expect(404, "Request resource not found", "DELETE", "/channel/ch/consumer/none/dlq", jobTokens, "")
	s.expect(403, "", "DELETE", job+ids["a"], header{"X-Broker-Channel-Token": "ct"}, "")
	s.expect(404, "job is not dead or retry not exhausted", "DELETE", job+ids["b"], jobTokens, "")
	s.expect(404, "Request resource not found", "DELETE", job+"x", jobTokens, "")
	s.expect(204, "", "DELETE", job+ids["a"], jobTokens, "")
	s.expect(404, "Request resource not found", "DELETE", job+ids["a"], jobTokens, "")
	s.expect(404, "job could not be found", "GET", job+ids["a"], jobTokens, "")

	s.expect(415, "", "POST", dlq, nil, "requeue=kt")
	s.expect(404, "", "POST", "/channel/ch/consumer/none/dlq", formType, "requeue=kt")
	s.expect(400, "`requeue` form param must match consumer token", "POST", dlq, formType, "requeue=no")
	s.expect(202, "", "POST", dlq, formType, "requeue=kt")
	require.Len(t, s.work("GET", "queued-jobs"), 1)

	kill(ids["b"])
	kill(ids["b"])
	require.Equal(t, "{\"deletedCount\":1}\n", s.expect(200, "", "DELETE", dlq, jobTokens, "").body)
	require.Equal(t, "{\"deletedCount\":0}\n", s.expect(200, "", "DELETE", dlq, jobTokens, "").body)
}

// The jobs of a consumer are listed in every status, whatever its type, in pages that leave none out.
func TestListJobs(t *testing.T) {
	s := newSite(t, nil)
	const jobs = "/channel/ch/consumer/pull/jobs"
	for _, m := range []string{"a", "b", "c", "d", "e"} {
		s.broadcast(m, "x", nil)
	}
	for _, w := range s.work("POST", "claim?limit=3") {
		if next := map[string]string{"a": "DELIVERED", "b": "DEAD"}[w.Message.MessageID]; next != "" {
			s.expect(202, "", "POST", job+w.ID, jobTokens, fmt.Sprintf(`{"NextState":%q,"ClaimToken":%q}`, next, w.ClaimToken))
		}
	}
	list := func(path string) (found, next string) {
		t.Helper()
		var list struct {
			Result []struct{ ID, MessageID, Status string }
			Pages  map[string]string
		}
		s.json(s.expect(200, "", "GET", path, nil, ""), &list)
		for _, j := range list.Result {
			found += j.MessageID + ":" + j.Status + " "
			require.Contains(t, s.expect(200, "", "GET", job+j.ID, jobTokens, "").body, `/message/`+j.MessageID+`"`)
		}
		return strings.TrimSpace(found), list.Pages["next"]
	}
	s.agree("/channel/ch")
	for query, want := range map[string]string{
		"":                         "e:QUEUED d:QUEUED c:INFLIGHT b:DEAD a:DELIVERED",
		"?status=QUEUED":           "e:QUEUED d:QUEUED",
		"?status=INFLIGHT":         "c:INFLIGHT",
		"?status=DELIVERED":        "a:DELIVERED",
		"?status=DEAD":             "b:DEAD",
		"?message=b":               "b:DEAD",
		"?message=b&status=QUEUED": "",
	} {
		found, _ := list(jobs + query)
		require.Equal(t, want, found, query)
	}
	all := []string{}
	for path := jobs + "?limit=2"; path != ""; {
		var found string
		if found, path = list(path); found != "" {
			all = append(all, found)
		}
	}
	require.Equal(t, []string{"e:QUEUED d:QUEUED", "c:INFLIGHT b:DEAD", "a:DELIVERED"}, all)
	require.Contains(t, s.expect(200, "", "GET", "/channel/ch/consumer/push/jobs?message=e", nil, "").body, `"MessageID":"e"`)
	s.expect(400, `invalid query parameter: status "dead": give QUEUED, INFLIGHT, DELIVERED or DEAD`, "GET", jobs+"?status=dead", nil, "")
	s.expect(404, "Request resource not found", "GET", jobs+"?message=none", nil, "")
	s.expect(404, "Request resource not found", "GET", "/channel/ch/consumer/none/jobs", nil, "")
}

// Without claims several workers may see a job. Their requests are decided one after the other: one worker starts the job, the
// others get the same answer, and the first outcome counts. No job is lost or stuck.
func TestWorkersWithoutClaims(t *testing.T) {
	s := newSite(t, nil)
	n, workers := 120, 32
	if testing.Short() {
		n, workers = 40, 16
	}
	for i := range n {
		s.broadcast(fmt.Sprint(i), "x", nil)
	}
	var mu sync.Mutex
	done := map[string]int{} // how often the delivery of a job was accepted
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for {
				work := s.work("GET", "queued-jobs?limit=10")
				if len(work) == 0 {
					return
				}
				for _, w := range work {
					for _, state := range []string{"INFLIGHT", "DELIVERED"} {
						a := s.do("POST", job+w.ID, jobTokens, `{"NextState":"`+state+`"}`)
						if a.status != 202 && (a.status != 400 || !strings.HasPrefix(a.body, "invalid transition request")) {
							t.Errorf("%s: %d %s", state, a.status, a.body)
						}
						if a.status == 202 && state == "DELIVERED" {
							mu.Lock()
							done[w.ID]++
							mu.Unlock()
						}
					}
				}
			}
		})
	}
	wg.Wait()
	require.Len(t, done, n, "every job was done by somebody who was told so")
	var counts map[string]map[string][]struct{ Status, Count int }
	s.json(s.expect(200, "", "GET", "/job-status", nil, ""), &counts)
	require.Len(t, counts["ch"]["pull"], 1)
	require.Equal(t, 1003, counts["ch"]["pull"][0].Status)
	require.Equal(t, n, counts["ch"]["pull"][0].Count)
}
