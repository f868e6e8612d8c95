package jetpull

import (
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
)

func msgWithReply(reply string) *Msg {
	return &Msg{sub: &Subscription{}, raw: &nats.Msg{Subject: "orders.1", Reply: reply, Data: []byte("data"), Header: nats.Header{"K": {"v"}}}}
}

const (
	replyV1 = "$JS.ACK.ORDERS.worker.3.77.81.1700000000123456789.5"
	replyV2 = "$JS.ACK.hub.ACCHASH.ORDERS.worker.3.77.81.1700000000123456789.5.token"
)

func TestAMessageImplementsJetStreams(t *testing.T) {
	var m jetstream.Msg = msgWithReply(replyV1)
	require.Equal(t, "orders.1", m.Subject())
	require.Equal(t, replyV1, m.Reply())
	require.Equal(t, []byte("data"), m.Data())
	require.Equal(t, nats.Header{"K": {"v"}}, m.Headers())
}

func TestMetadata(t *testing.T) {
	for _, tt := range []struct{ reply, domain string }{
		{replyV1, ""},
		{replyV2, "hub"},
		{"$JS.ACK._.ACCHASH.ORDERS.worker.3.77.81.1700000000123456789.5", ""},
	} {
		m := msgWithReply(tt.reply)
		meta, err := m.Metadata()
		require.NoError(t, err)
		require.Equal(t, &jetstream.MsgMetadata{
			Sequence:     jetstream.SequencePair{Consumer: 81, Stream: 77},
			NumDelivered: 3, NumPending: 5,
			Timestamp: time.Unix(0, 1700000000123456789),
			Stream:    "ORDERS", Consumer: "worker", Domain: tt.domain,
		}, meta)
		require.EqualValues(t, 77, m.Sequence())
		require.EqualValues(t, 3, m.Delivered())
		require.Zero(t, testing.AllocsPerRun(100, func() {
			if m.Sequence() != 77 || m.Delivered() != 3 {
				t.Fail()
			}
		}))
	}
}

func TestMetadataOfSomethingElse(t *testing.T) {
	for _, reply := range []string{"", "_INBOX.x", "$JS.ACK.a", "$JS.ACK.S.C.x.1.1.1.1", "$JS.ACK.a.b.c.1.2.3.4.5"} {
		m := msgWithReply(reply)
		_, err := m.Metadata()
		require.ErrorIs(t, err, jetstream.ErrNotJSMessage)
		require.Contains(t, err.Error(), reply)
		require.Zero(t, m.Sequence())
		require.Zero(t, m.Delivered())
	}
}

func TestConfirmationsOfOthersAreNotMine(t *testing.T) {
	for _, subject := range []string{"", "x", "in.", "in.zz", "in.0", "in.-1", "in.1 ", "in.1.2", "in.99999999999999999999", "other.a"} {
		c := confirmationOf(10, 3)
		c.confirmed(&nats.Msg{Subject: subject})
		require.Equal(t, 3, c.left, "%q", subject)
		require.Empty(t, c.errs)
	}
	c := confirmationOf(10, 3)
	c.confirmed(&nats.Msg{Subject: "in.b"}) // 11 in base 36
	c.confirmed(&nats.Msg{Subject: "in.b"})
	require.Equal(t, []bool{true, false, true}, c.waiting)
	require.Equal(t, 2, c.left, "the second one counts nothing")
	c.confirmed(&nats.Msg{Subject: "in.c", Header: nats.Header{"Status": {"503"}}})
	require.Equal(t, 1, c.left)
	require.ErrorIs(t, errors.Join(c.errs...), ErrNoResponders)
	require.EqualValues(t, 1, c.sub.counts.acks.Load())
}

func confirmationOf(first uint64, n int) *confirmation {
	c := &confirmation{sub: &Subscription{}, inbox: &ackInbox{prefix: "in."}, first: first, left: n}
	for range n {
		c.msgs = append(c.msgs, msgWithReply(replyV1))
		c.waiting = append(c.waiting, true)
	}
	return c
}
