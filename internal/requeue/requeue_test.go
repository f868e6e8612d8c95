package requeue

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
)

// account has the streams that a test names, and counts the requests for them.
type account struct {
	streams map[string][]string
	err     error
	asked   int
}

func (a *account) info(_ context.Context, stream string) (*jetstream.StreamInfo, error) {
	a.asked++
	subjects, ok := a.streams[stream]
	switch {
	case a.err != nil:
		return nil, a.err
	case stream == "":
		return nil, jetstream.ErrStreamNameRequired
	case !ok:
		return nil, jetstream.ErrStreamNotFound
	}
	return &jetstream.StreamInfo{Config: jetstream.StreamConfig{Name: stream, Subjects: subjects}}, nil
}

func TestMessage(t *testing.T) {
	a := &account{streams: map[string][]string{"ORDERS": {"orders.>"}, "ALL": {">"}, "eu_messages": {"eu.m.>"}}}
	r := New(a.info, "_own.prefix")
	l := Letter{
		StoredIn: "D", Sequence: 7, Time: time.Unix(0, 9), Subject: "orders.new", Stream: "ORDERS", Data: []byte("x"),
		Header: nats.Header{
			"X-Kind": {"a"}, "Nats-Rollup": {"all"}, "nats-expected-stream": {"OTHER"}, "Dead-Letter-Subject": {"orders.new"},
			"dead-letter-x": {"y"},
		},
	}
	m, err := r.Message(t.Context(), &l, "")
	require.NoError(t, err)
	require.Equal(t, &nats.Msg{Subject: "orders.new", Data: []byte("x"), Header: nats.Header{
		"X-Kind": {"a"}, "Nats-Msg-Id": {"requeue:D:7:9"}, "Nats-Expected-Stream": {"ORDERS"},
	}}, m)
	require.Contains(t, l.Header, "Nats-Rollup", "the letter is as it was")
	m, err = r.Message(t.Context(), &l, "chosen")
	require.NoError(t, err)
	require.Equal(t, "chosen", m.Subject)
	require.NotContains(t, m.Header, "Nats-Expected-Stream")

	for subject, origin := range map[string]string{
		"$JS.API.STREAM.DELETE.ORDERS": "ALL", "$KV.broker_registry.c.a": "ALL", "$SYS.REQ.SERVER.PING": "ALL", "_INBOX.a.b": "ALL", "_own.prefix.a": "ALL",
		"orders.*": "ORDERS", "orders.>": "ORDERS", "orders..a": "ORDERS", "orders. a": "ORDERS", "orders.\r\nPUB": "ORDERS", "": "ORDERS",
		"other.new": "ORDERS", "orders.new": "NONE", "orders.old": "", "eu.m.a.b": "eu_messages",
	} {
		forged := l
		forged.Subject, forged.Stream = subject, origin
		_, err := r.Message(t.Context(), &forged, "")
		require.ErrorAs(t, err, new(Refusal), "%q of %q", subject, origin)
		if origin == "ALL" {
			_, err := r.Message(t.Context(), &l, subject)
			require.Error(t, err, "also as the operator's own choice: %q", subject)
		}
	}
	gone := l
	gone.Gone = true
	_, err = r.Message(t.Context(), &gone, "chosen")
	require.ErrorContains(t, err, "payload was left out")
}

// A rule asks once for each stream, remembers a bounded number, and does not remember that it got no answer.
func TestMessageAsksOnce(t *testing.T) {
	a := &account{streams: map[string][]string{"ORDERS": {"orders.>"}}, err: errors.New("no answer")}
	r := New(a.info, "")
	l := Letter{StoredIn: "D", Subject: "orders.new", Stream: "ORDERS"}
	_, err := r.Message(t.Context(), &l, "")
	require.ErrorIs(t, err, a.err)
	require.False(t, errors.As(err, new(Refusal)))
	a.err = nil
	for range 10 {
		_, err := r.Message(t.Context(), &l, "")
		require.NoError(t, err)
	}
	require.Equal(t, 2, a.asked)
	for i := range 10 * mostKnown {
		l.Stream = fmt.Sprint(i)
		_, err := r.Message(t.Context(), &l, "")
		require.ErrorContains(t, err, "does not exist")
	}
	require.LessOrEqual(t, len(r.known), mostKnown)
}

func TestTally(t *testing.T) {
	var tally Tally
	require.Equal(t, "no subject", tally.String())
	for range 3 {
		tally.Add("orders.new", nil)
	}
	tally.Add("orders.a", nil)
	tally.Add("a\x1b[31m", nil)
	tally.Add("x", errors.New("first"))
	tally.Add("x", errors.New("second"))
	require.Equal(t, `orders.new (3), "a\x1b[31m" (1), orders.a (1); refused: 2 (first)`, tally.String())
	for i := range 2 * mostSubjects {
		tally.Add(fmt.Sprint("s", i), nil)
	}
	tally.Add(strings.Repeat("y", 1000), nil)
	require.Len(t, tally.Subjects, mostSubjects)
	require.Contains(t, tally.String(), "other subjects (19")
	require.Less(t, len(tally.String()), 300)
}
