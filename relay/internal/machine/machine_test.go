package machine

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var (
	t0   = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	base = Policy{MaxAttempts: 3, RetryAfter: 5 * time.Second}
)

func with(change func(*Policy)) Policy {
	p := base
	change(&p)
	return p
}

var (
	callback   = with(func(p *Policy) { p.Callback = true })
	status     = with(func(p *Policy) { p.StatusEndpoint = true })
	atMostOnce = with(func(p *Policy) { p.AtMostOnce = true })
)

func at(s Status, attempt int) Record {
	r := Record{Source: "s", ID: "i", Status: s, Attempt: attempt}
	if s == Failed {
		r.Failure = &Failure{Stage: ToReceiver, Reason: Exhausted}
	}
	return r
}

// Each event in each status. An event that is missing from a status must be ignored there.
func TestEveryEventInEveryStatus(t *testing.T) {
	statuses := []Status{Arrived, Sending, Delivered, Responded, Done, Failed}
	type to map[Status]Status
	for name, tt := range map[string]struct {
		event Event
		want  to
	}{
		"send":                     {Event{Kind: Send, Policy: base}, to{Arrived: Sending}},
		"send without attempts":    {Event{Kind: Send, Policy: Policy{MaxAttempts: 1}}, to{Arrived: Failed}},
		"result":                   {Event{Kind: Answered, Attempt: 1, Policy: base}, to{Sending: Done}},
		"result with a callback":   {Event{Kind: Answered, Attempt: 1, Policy: callback}, to{Sending: Responded}},
		"pending":                  {Event{Kind: Answered, Attempt: 1, Outcome: Pending, Policy: status}, to{Sending: Delivered}},
		"retry":                    {Event{Kind: Answered, Attempt: 1, Outcome: Retry, Policy: base}, to{Sending: Arrived}},
		"the last retry":           {Event{Kind: Answered, Attempt: 1, Outcome: Retry, Policy: Policy{MaxAttempts: 1}}, to{Sending: Failed}},
		"refused":                  {Event{Kind: Answered, Attempt: 1, Outcome: Refused, Policy: base}, to{Sending: Failed}},
		"answer of another POST":   {Event{Kind: Answered, Attempt: 2, Policy: base}, to{}},
		"lost":                     {Event{Kind: Lost, Attempt: 1, Policy: base}, to{Sending: Arrived}},
		"lost, at most once":       {Event{Kind: Lost, Attempt: 1, Policy: atMostOnce}, to{Sending: Failed}},
		"lost, can be asked":       {Event{Kind: Lost, Attempt: 1, Policy: status}, to{Sending: Sending}},
		"never seen":               {Event{Kind: NeverSeen, Attempt: 1, Policy: status}, to{Sending: Arrived}},
		"asked: result":            {Event{Kind: Asked, Policy: status}, to{Sending: Done, Delivered: Done}},
		"asked: pending":           {Event{Kind: Asked, Outcome: Pending, Policy: status}, to{Sending: Delivered}},
		"given up":                 {Event{Kind: GiveUp, Stage: ToReceiver}, to{Arrived: Failed, Sending: Failed, Delivered: Failed}},
		"given up at the callback": {Event{Kind: GiveUp, Stage: ToSender}, to{Responded: Failed}},
		"told":                     {Event{Kind: CalledBack, Policy: callback}, to{Responded: Done, Failed: Failed}},
		"redriven":                 {Event{Kind: Redrive, Policy: base}, to{Failed: Arrived}},
	} {
		for _, s := range statuses {
			before := at(s, 1)
			event := tt.event
			event.Now = t0
			after, changed := Next(before, event)
			want, ok := tt.want[s]
			require.Equal(t, ok, changed, "%s in %s", name, s)
			if !ok {
				require.Equal(t, before, after, "%s in %s", name, s)
				continue
			}
			require.Equal(t, want, after.Status, "%s in %s", name, s)
			require.Equal(t, after.Status.Ended(), !after.EndedAt.IsZero() || name == "told", "%s in %s", name, s)
			require.Equal(t, after.Status == Failed, after.Failure != nil, "%s in %s", name, s)
		}
	}
}

// Two workers hold the same record. The compare-and-swap lets one write, and the other applies its event to the record that the
// first one wrote. In either order the message ends once, and no POST is repeated that must not be.
func TestRaces(t *testing.T) {
	for name, tt := range map[string]struct {
		from          Record
		first, second Event
		want          Status
		secondCounts  bool
	}{
		"answer, then its process is thought dead": {
			at(Sending, 1),
			Event{Kind: Answered, Attempt: 1, Policy: base},
			Event{Kind: Lost, Attempt: 1, Policy: base},
			Done, false,
		},
		"thought dead and sent again, then the first answer": {
			at(Sending, 1),
			Event{Kind: Lost, Attempt: 1, Policy: base},
			Event{Kind: Answered, Attempt: 1, Policy: base},
			Arrived, false,
		},
		"polled twice": {
			at(Delivered, 1),
			Event{Kind: Asked, Policy: callback},
			Event{Kind: Asked, Policy: callback},
			Responded, false,
		},
		"expired while it is polled": {
			at(Delivered, 1),
			Event{Kind: GiveUp, Stage: FromReceiver, Reason: Expired, Policy: base},
			Event{Kind: Asked, Policy: base},
			Failed, false,
		},
		"result just before it expires": {
			at(Delivered, 1),
			Event{Kind: Asked, Policy: base},
			Event{Kind: GiveUp, Stage: FromReceiver, Reason: Expired, Policy: base},
			Done, false,
		},
		"two senders of the same attempt": {
			at(Arrived, 0),
			Event{Kind: Send, Policy: base},
			Event{Kind: Send, Policy: base},
			Sending, false,
		},
		"told twice":     {at(Responded, 1), Event{Kind: CalledBack}, Event{Kind: CalledBack}, Done, false},
		"redriven twice": {at(Failed, 3), Event{Kind: Redrive}, Event{Kind: Redrive}, Arrived, false},
		"told of the failure after the redrive": {
			at(Failed, 3), Event{Kind: Redrive}, Event{Kind: CalledBack}, Arrived, false,
		},
		"told of the failure before the redrive": {
			at(Failed, 3), Event{Kind: CalledBack}, Event{Kind: Redrive}, Arrived, true,
		},
		"asked after a time-out, the receiver has it": {
			at(Sending, 1),
			Event{Kind: Lost, Attempt: 1, Policy: status},
			Event{Kind: Asked, Policy: status},
			Done, true,
		},
	} {
		r, changed := Next(tt.from, tt.first)
		require.True(t, changed, name)
		r, changed = Next(r, tt.second)
		require.Equal(t, tt.secondCounts, changed, name)
		require.Equal(t, tt.want, r.Status, name)
	}
}

func TestNeverSeenCountsWhereThePOSTWasMade(t *testing.T) {
	crashed, changed := Next(at(Sending, 2), Event{Kind: NeverSeen, Attempt: 2, Policy: status})
	require.True(t, changed)
	require.Equal(t, 1, crashed.Attempt, "the same number is sent again")
	lost, _ := Next(at(Sending, 2), Event{Kind: Lost, Attempt: 2, Policy: status})
	require.True(t, lost.Unknown)
	seen, changed := Next(lost, Event{Kind: NeverSeen, Attempt: 2, Policy: status, Now: t0})
	require.True(t, changed)
	require.Equal(t, Arrived, seen.Status)
	require.Equal(t, 2, seen.Attempt)
	require.Equal(t, t0.Add(5*time.Second), seen.NextAt)
	last, _ := Next(at(Sending, 3), Event{Kind: Lost, Attempt: 3, Policy: status})
	last, _ = Next(last, Event{Kind: NeverSeen, Attempt: 3, Policy: status})
	require.Equal(t, Failed, last.Status)
	require.Equal(t, Exhausted, last.Failure.Reason)
}

func TestRetryAfterOfTheReceiverWins(t *testing.T) {
	r, _ := Next(at(Sending, 1), Event{Kind: Answered, Attempt: 1, Outcome: Retry, RetryAfter: time.Minute, Policy: base, Now: t0})
	require.Equal(t, t0.Add(time.Minute), r.NextAt)
	r, _ = Next(at(Sending, 1), Event{Kind: Answered, Attempt: 1, Outcome: Retry, RetryAfter: time.Second, Policy: base, Now: t0})
	require.Equal(t, t0.Add(5*time.Second), r.NextAt)
}

func TestClassify(t *testing.T) {
	for code, want := range map[int]Outcome{
		200: Result, 201: Result, 204: Result, 299: Result, 301: Refused, 302: Refused, 400: Refused, 401: Refused, 404: Refused,
		408: Retry, 409: Refused, 410: Retry, 413: Refused, 425: Retry, 429: Retry, 499: Refused, 500: Retry, 502: Retry, 503: Retry, 504: Retry,
	} {
		require.Equal(t, want, Classify(code, true), code)
		require.Equal(t, want, Classify(code, false), code)
	}
	require.Equal(t, Pending, Classify(202, true))
	require.Equal(t, Result, Classify(202, false))
}

func TestRedriveOfAFailedCallbackCallsAgain(t *testing.T) {
	r := at(Failed, 1)
	r.Failure.Stage, r.Response = ToSender, json.RawMessage(`1`)
	again, changed := Next(r, Event{Kind: Redrive, Policy: callback})
	require.True(t, changed)
	require.Equal(t, Responded, again.Status, "the receiver gets no second POST")
	require.Equal(t, 1, again.Generation)
}

func TestHistoryIsBoundedAndNotShared(t *testing.T) {
	r := at(Sending, 1)
	for i := range 2 * maxAttempts {
		r.Status, r.Attempt = Sending, i+1
		before := append([]Attempt(nil), r.Attempts...)
		next, _ := Next(r, Event{
			Kind: Answered, Attempt: i + 1, Outcome: Retry, Policy: Policy{MaxAttempts: 1000},
			Note: Attempt{Error: string(make([]byte, 2*maxError))},
		})
		require.Equal(t, before, r.Attempts)
		r = next
	}
	require.Len(t, r.Attempts, maxAttempts)
	require.Equal(t, 2*maxAttempts, r.Attempts[maxAttempts-1].Number)
	require.Len(t, r.Attempts[0].Error, maxError)
}
