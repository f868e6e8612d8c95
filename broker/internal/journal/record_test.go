package journal

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/broker/internal/domain"
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

func rawMessage(envelope string) *jetstream.RawStreamMsg {
	return &jetstream.RawStreamMsg{Sequence: 1, Time: time.Unix(9, 0), Header: nats.Header{headerEnvelope: {envelope}}}
}

func FuzzEnvelope(f *testing.F) {
	m := domain.Message{ID: "i", Channel: "c", Producer: "p", ContentType: "t", Priority: 4, Headers: map[string]string{"A": "b"}, ReceivedAt: time.Unix(1, 2)}
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
