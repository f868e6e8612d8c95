package httpapi_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/broker"
)

func TestScheduled(t *testing.T) {
	s := newSite(t, nil)
	at := time.Now().Add(time.Hour).UTC().Truncate(time.Second)
	schedule := func(status int, text, id, when string) answer {
		t.Helper()
		return s.expect(status, text, "POST", "/channel/ch/broadcast", with(producer, header{"X-Broker-Message-ID": id, "X-Broker-Scheduled-For": when}),
			"later")
	}
	s.expect(400, "invalid: the body is empty: a message needs a payload", "POST", "/channel/ch/broadcast",
		with(producer, header{"X-Broker-Scheduled-For": at.Format(time.RFC3339)}), "")
	schedule(400, "invalid date format for X-Broker-Scheduled-For, expected ISO-8601/RFC3339 format: \"tomorrow\": give a time such as "+
		"2026-01-02T15:04:05Z", "m", "tomorrow")
	schedule(412, "scheduled time must be at least 2 minutes in the future", "m", time.Now().Add(time.Minute).Format(time.RFC3339))
	require.Equal(t, "/channel/ch/scheduled-message/m", schedule(201, "", "m", at.Format(time.RFC3339)).header.Get("Location"))
	schedule(409, "duplicate scheduled message id for channel", "m", at.Format(time.RFC3339))
	s.agree("/channel/ch") // the other node refuses an ID of the other kind a moment later
	s.expect(409, "duplicate message id for channel", "POST", "/channel/ch/broadcast", with(producer, header{"X-Broker-Message-ID": "m"}), "now")
	var m struct {
		ID, MessageID, ProducedBy, Status, Payload string
		DispatchSchedule                           time.Time
	}
	s.json(s.expect(200, "", "GET", "/channel/ch/scheduled-message/m", nil, ""), &m)
	require.Equal(t, "pr", m.ProducedBy)
	require.Equal(t, "SCHEDULED", m.Status)
	require.Equal(t, at, m.DispatchSchedule)
	require.Contains(t, s.expect(200, "", "GET", "/channel/ch/scheduled-messages?status=101", nil, "").body, "/channel/ch/scheduled-message/m")
	require.Contains(t, s.expect(200, "", "GET", "/channel/ch/scheduled-messages?status=102", nil, "").body, `"result":[]`)
	var status struct {
		Counts map[string]struct {
			Count int
			Links map[string]string
		} `json:"counts"`
		Next time.Time `json:"next_scheduled_message_at"`
	}
	s.json(s.expect(200, "", "GET", "/channel/ch/messages-status", nil, ""), &status)
	require.Equal(t, 1, status.Counts["SCHEDULED_SCHEDULED"].Count)
	require.Equal(t, "/channel/ch/scheduled-messages?status=101", status.Counts["SCHEDULED_SCHEDULED"].Links["messages"])
	require.Equal(t, at, status.Next)

	s.expect(403, "", "DELETE", "/channel/ch/scheduled-message/m", nil, "")
	s.expect(204, "", "DELETE", "/channel/ch/scheduled-message/m", producer, "")
	s.expect(404, "", "DELETE", "/channel/ch/scheduled-message/m", producer, "")
	s.expect(404, "", "GET", "/channel/ch/scheduled-message/m", nil, "")
	s.agree("/channel/ch")
	s.broadcast("m", "now", nil)
}

// A scheduled message is broadcast at its time, and not earlier.
func TestScheduledIsBroadcast(t *testing.T) {
	s := newSite(t, func(c *broker.Config) { c.Scheduler.MinDelay = 0 })
	at := time.Now().Add(1200 * time.Millisecond).UTC()
	s.broadcast("m", "later", header{
		"X-Broker-Scheduled-For": at.Format(time.RFC3339Nano), "X-Broker-Message-Priority": "4",
		"X-Broker-Metadata-Headers": "X-A", "X-A": "1",
	})
	queued, message := s.work("GET", "queued-jobs"), s.do("GET", "/channel/ch/message/m", nil, "")
	if time.Now().Before(at) { // otherwise the broadcast may have come first
		require.Empty(t, queued)
		require.Equal(t, 404, message.status, message.body)
	}
	work := s.work("POST", "claim?wait=15s")
	require.Len(t, work, 1)
	require.False(t, time.Now().Before(at), "it came before its time")
	require.Equal(t, "m", work[0].Message.MessageID)
	require.Equal(t, "later", work[0].Message.Payload)
	require.Equal(t, 4, work[0].Priority)
	var m struct {
		Status       string
		DispatchedAt time.Time
		Headers      map[string]string
	}
	s.json(s.expect(200, "", "GET", "/channel/ch/scheduled-message/m", nil, ""), &m)
	require.Equal(t, "DISPATCHED", m.Status)
	require.False(t, m.DispatchedAt.Before(at))
	s.json(s.expect(200, "", "GET", "/channel/ch/message/m", nil, ""), &m)
	require.Equal(t, map[string]string{"X-A": "1"}, m.Headers)
	require.Contains(t, s.expect(200, "", "GET", "/channel/ch/scheduled-messages?status=102", nil, "").body, "/channel/ch/scheduled-message/m")
	s.expect(404, "", "DELETE", "/channel/ch/scheduled-message/m", producer, "")
	s.expect(409, "duplicate message id for channel", "POST", "/channel/ch/broadcast", with(producer, header{"X-Broker-Message-ID": "m"}), "again")
}

// The server stores the time of a schedule in 64-bit nanoseconds, and broadcasts a message beyond that range at once.
func TestScheduleBeyondNanoseconds(t *testing.T) {
	s := newSite(t, nil)
	for _, at := range []string{"2263-01-01T00:00:00Z", "9999-12-31T23:59:59Z"} {
		s.expect(400, "", "POST", "/channel/ch/broadcast", with(producer, header{"X-Broker-Message-ID": at, "X-Broker-Scheduled-For": at}), "never")
	}
	s.expect(201, "", "POST", "/channel/ch/broadcast", with(producer, header{"X-Broker-Scheduled-For": "2261-12-31T23:59:59Z"}), "late")
}
