package dlqcmd

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/client"
	"github.com/jetpull/jetpull/internal/natstest"
	"github.com/jetpull/jetpull/internal/requeue"
	"github.com/jetpull/jetpull/test/servertest"
)

// Letters reads what Consume has stored, and passes over other messages.
func TestLetters(t *testing.T) {
	t.Parallel()
	js := natstest.JetStream(t, servertest.RunServer(t).Connect(t))
	natstest.Stream(t, js, "S", "s.>")
	natstest.Stream(t, js, "D", "dead.>")
	natstest.Consumer(t, js, "S", jetstream.ConsumerConfig{Durable: "c", AckPolicy: jetstream.AckExplicitPolicy})
	for _, m := range []*nats.Msg{
		{Subject: "dead.other", Data: []byte("no dead letter")},
		{Subject: "s.a", Data: []byte("one"), Header: nats.Header{"X-Kind": {"k"}, nats.MsgIdHdr: {"id"}}},
		{Subject: "s.b", Data: []byte("four")},
	} {
		_, err := js.PublishMsg(t.Context(), m)
		require.NoError(t, err)
	}
	sub, err := jetpull.Subscribe(t.Context(), js, "S", "c")
	require.NoError(t, err)
	refuse := func(context.Context, *jetpull.Msg) error { return errors.New("refused") }
	require.NoError(t, sub.Consume(t.Context(), refuse, jetpull.MaxAttempts(1), jetpull.DeadLetter("dead.letters"), jetpull.StopAfter(2)))
	require.NoError(t, sub.Close(t.Context()))
	d, err := js.Stream(t.Context(), "D")
	require.NoError(t, err)
	for _, payloads := range []bool{true, false} {
		var all []requeue.Letter
		for l, err := range (&dlq{link: &client.Link{JS: js}, stream: d}).letters(t.Context(), payloads) {
			require.NoError(t, err)
			require.WithinDuration(t, time.Now(), l.Time, time.Minute)
			l.Time = time.Time{}
			all = append(all, *l)
		}
		want := []requeue.Letter{
			{
				StoredIn: "D", Sequence: 2, Subject: "s.a", Stream: "S", Origin: 1, Consumer: "c", Attempts: 1, Reason: "refused",
				Header: nats.Header{"X-Kind": {"k"}}, Data: []byte("one"), Size: 3,
			},
			{
				StoredIn: "D", Sequence: 3, Subject: "s.b", Stream: "S", Origin: 2, Consumer: "c", Attempts: 1, Reason: "refused", Header: nats.Header{},
				Data: []byte("four"), Size: 4,
			},
		}
		if !payloads {
			want[0].Data, want[1].Data = nil, nil
		}
		require.Equal(t, want, all)
	}
	require.NoError(t, js.DeleteStream(t.Context(), "D"))
	for _, err := range (&dlq{link: &client.Link{JS: js}, stream: d}).letters(t.Context(), true) {
		require.ErrorIs(t, err, jetstream.ErrStreamNotFound)
		require.ErrorContains(t, err, `dead letters of stream "D"`)
	}
}

// The letters end although another process deletes those that were not yet read.
func TestLettersThatVanish(t *testing.T) {
	t.Parallel()
	js := natstest.JetStream(t, servertest.RunServer(t).Connect(t))
	natstest.Stream(t, js, "D", "dead.>")
	const many = 2000 // more than are read ahead
	for range 2 * many {
		_, err := js.PublishMsgAsync(&nats.Msg{
			Subject: "dead.letters", Data: make([]byte, 100),
			Header: nats.Header{jetpull.HeaderDeadSubject: {"s.0"}, jetpull.HeaderDeadStream: {"S"}},
		})
		require.NoError(t, err)
	}
	<-js.PublishAsyncComplete()
	for _, payloads := range []bool{true, false} {
		d, err := js.Stream(t.Context(), "D")
		require.NoError(t, err)
		n := 0
		for _, err := range (&dlq{link: &client.Link{JS: js}, stream: d}).letters(t.Context(), payloads) {
			require.NoError(t, err)
			if n++; n == 1 && payloads {
				require.NoError(t, d.Purge(t.Context(), jetstream.WithPurgeKeep(many)))
			} else if n == 1 {
				require.NoError(t, d.Purge(t.Context()))
			}
		}
		require.Less(t, n, 2*many)
	}
}
