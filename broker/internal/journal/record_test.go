package journal

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/broker/internal/domain"
	"github.com/jetpull/jetpull/test/servertest"
)

func TestRecordRoundTrip(t *testing.T) {
	now := time.Now().UTC()
	for _, j := range []domain.Job{
		{Status: domain.Queued, Retries: 3, Priority: 7, ChangedAt: now, Due: now.Add(time.Minute)},
		{Status: domain.Inflight, ChangedAt: now, Due: now, IncrementalTimeout: time.Hour, Claim: domain.NewToken()},
		{Status: domain.Delivered, ChangedAt: now, Attempts: 7, Took: 5 * time.Millisecond, Code: 204, Replay: domain.NewID(), Claim: "c"},
		{Status: domain.Dead, ChangedAt: now, Attempts: 1},
		{Status: domain.Removed, Priority: 1<<31 - 1, ChangedAt: now},
	} {
		j.ID, j.Revision = domain.JobID{Seq: 5, Consumer: 6}, 9
		got, err := decodeRecord(j.ID, 9, encodeRecord(j))
		require.NoError(t, err)
		require.Equal(t, j, got)
	}
	id, err := parseJobSubject("any.prefix.j.6.5")
	require.NoError(t, err)
	require.Equal(t, domain.JobID{Seq: 5, Consumer: 6}, id)
	for _, bad := range []string{"", "5", "j.5", "j.x.5", "j.5.x", "j.99999999999.5"} {
		_, err := parseJobSubject(bad)
		require.ErrorIs(t, err, errRecord, bad)
	}
}

func FuzzRecord(f *testing.F) {
	f.Add(encodeRecord(domain.Job{Status: domain.Dead, Claim: "x", ChangedAt: time.Unix(5, 0)}))
	f.Add(encodeRecord(domain.Job{Status: domain.Dead, Claim: "x", Attempts: 2, Code: 500, Replay: "y"}))
	f.Add([]byte{1})
	f.Fuzz(func(t *testing.T, b []byte) {
		j, err := decodeRecord(domain.JobID{Seq: 1, Consumer: 1}, 1, b)
		if err != nil {
			require.ErrorIs(t, err, errRecord)
			return
		}
		again, err := decodeRecord(j.ID, 1, encodeRecord(j))
		require.NoError(t, err)
		require.Equal(t, j, again)
	})
}

// rawMessage is a message on the subject that its envelope names.
func rawMessage(header string) *jetstream.RawStreamMsg {
	var e envelope
	if s, err := decodeSummary(header); err == nil {
		_ = json.Unmarshal([]byte(s.body), &e)
	}
	subject := "broker.m." + domain.SubjectToken(e.Channel) + "." + domain.SubjectToken(e.ID)
	return &jetstream.RawStreamMsg{Subject: subject, Sequence: 1, Time: time.Unix(9, 0), Header: nats.Header{headerEnvelope: {header}}}
}

// A message is judged by its subject: an envelope that names another channel or ID is not the broker's.
func TestEnvelopeOfAnotherChannel(t *testing.T) {
	header, err := encodeEnvelope(domain.Message{ID: "i", Channel: "chB", Producer: "p", ReceivedAt: time.Unix(1, 2)}, time.Time{})
	require.NoError(t, err)
	raw := rawMessage(header)
	_, err = decodeMessage(raw)
	require.NoError(t, err)
	for _, subject := range []string{"broker.m.chA.i", "broker.s.chA.i", "broker.m.chB.j", "broker.m.chB.x.i", "broker.m.xchB.i", "chB.i.x", ""} {
		raw.Subject = subject
		_, err = decodeMessage(raw)
		require.ErrorIs(t, err, errEnvelope, subject)
	}
	// A client that may publish to one channel.
	srv := servertest.RunServer(t, servertest.WithAttackers("broker.m.chA.*"))
	s := shared(t, srv)
	a, b := makeConsumer(t, s, "chA", "k", domain.Pull), makeConsumer(t, s, "chB", "k", domain.Pull)
	forged := []nats.Header{
		{headerEnvelope: {header}},
		// as an answer to a direct get
		{headerEnvelope: {header}, "Nats-Subject": {"broker.m.chB.i"}, "Nats-Sequence": {"1"}, "Nats-Time-Stamp": {"2020-01-01T00:00:00Z"}},
		{headerEnvelope: {header}, "Status": {"404"}},
	}
	seqs := make([]uint64, len(forged))
	for i, header := range forged {
		_, err = srv.Attacker(t, "broker.m.chA.*").RequestMsg(&nats.Msg{Subject: "broker.m.chA.i", Header: header}, time.Minute)
		require.NoError(t, err)
		seqs[i] = uint64(i + 1)
	}
	own := appendMessage(t, s, "chA", "own", 0)
	require.Eventually(t, func() bool { return len(s.Index.Queue.Queued(a.Number, 9)) == len(forged)+1 }, time.Minute, time.Millisecond,
		"the forged ones are read")
	list, err := s.Messages.InOrder(t.Context(), append(seqs, own.Seq))
	require.NoError(t, err)
	require.Len(t, list, 1)
	require.Equal(t, "own", list[0].ID)
	require.Len(t, s.Index.Queue.Queued(a.Number, 9), 1, "the forged ones hold nothing up")
	require.Empty(t, s.Index.Queue.Queued(b.Number, 9))
}

func FuzzEnvelope(f *testing.F) {
	m := domain.Message{
		ID: "i", Channel: "c", Producer: "p", ContentType: "t", Priority: 4, Headers: map[string]string{"A": "b"},
		ReceivedAt: time.Unix(1, 2),
	}
	header, err := encodeEnvelope(m, time.Unix(3, 0))
	require.NoError(f, err)
	f.Add(header)
	f.Add("1 2")
	f.Add("-1 x {}")
	f.Fuzz(func(t *testing.T, header string) {
		m, err := decodeMessage(rawMessage(header))
		if err != nil {
			return
		}
		again, err := encodeEnvelope(m.Message, m.For)
		if err != nil {
			require.ErrorIs(t, err, domain.ErrTooLarge)
			return
		}
		same, err := decodeMessage(rawMessage(again))
		require.NoError(t, err)
		if len(m.Headers) == 0 {
			m.Headers, same.Headers = nil, nil
		}
		require.Equal(t, m, same)
	})
}
