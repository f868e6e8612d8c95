package test

import (
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/internal/natstest"
	"github.com/jetpull/jetpull/test/servertest"
)

// TestFetchAndNext on every kind of consumer, stream and connection.
func TestFetchAndNext(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		cfg    jetstream.ConsumerConfig
		server []servertest.ServerOption
		conn   []nats.Option
	}{
		{name: "durable"},
		{name: "ephemeral", cfg: jetstream.ConsumerConfig{Name: "C", InactiveThreshold: time.Minute}},
		{name: "in memory", cfg: jetstream.ConsumerConfig{MemoryStorage: true}},
		{name: "ack all", cfg: jetstream.ConsumerConfig{AckPolicy: jetstream.AckAllPolicy}},
		{name: "ack none", cfg: jetstream.ConsumerConfig{AckPolicy: jetstream.AckNonePolicy}},
		{name: "domain", server: []servertest.ServerOption{servertest.WithDomain("hub")}},
		{name: "inbox prefix", conn: []nats.Option{nats.CustomInboxPrefix("my.own")}},
		{name: "no echo", conn: []nats.Option{nats.NoEcho()}},
		{name: "old request style", conn: []nats.Option{nats.UseOldRequestStyle()}},
		{name: "small buffers", conn: []nats.Option{nats.SyncQueueLen(1)}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, tc.server...)
			r.consumer(t, tc.cfg)
			nc := r.server.Connect(t, tc.conn...)
			sub := subscribe(t, r.server.JetStream(t, nc), "S", "C")
			r.publish(t, 10)
			r.pending(t, 10)
			msgs := fetch(t, sub, 3)
			requireBodies(t, msgs, "1", "2", "3")
			for want := 4; want <= 6; want++ {
				m := next(t, sub)
				requireBodies(t, []*jetpull.Msg{m}, fmt.Sprint(want))
				meta, err := m.Metadata()
				require.NoError(t, err)
				require.EqualValues(t, want, meta.Sequence.Stream)
				require.EqualValues(t, 1, meta.NumDelivered)
				require.Equal(t, "s.a", m.Subject())
				msgs = append(msgs, m)
			}
			rest := fetch(t, sub, 100)
			requireBodies(t, rest, "7", "8", "9", "10")
			waiting := call(t.Context(), sub, 10, jetpull.MaxWait(forever))
			r.waiting(t, 1)
			r.publish(t, 1)
			msgs = append(append(msgs, rest...), served(t, waiting, "the first message, and not ten")...)
			require.Len(t, msgs, 11)
			if tc.cfg.AckPolicy == jetstream.AckNonePolicy {
				require.NoError(t, msgs[0].Ack(), "an ack is nothing")
			} else {
				ackAll(t, msgs...)
			}
			r.ackPending(t, 0)
			_, err := sub.Next(t.Context(), jetpull.NoWait())
			require.ErrorIs(t, err, jetpull.ErrNoMessages)
			require.NoError(t, nc.LastError())
		})
	}
}

// TestNoWaitAtMaxAckPending: the server does not answer a no-wait pull then.
func TestNoWaitAtMaxAckPending(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	sub := r.subscribe(t, jetstream.ConsumerConfig{MaxAckPending: 1, AckWait: forever})
	r.publish(t, 2)
	held := next(t, sub)
	_, err := sub.Next(t.Context(), jetpull.NoWait())
	require.ErrorIs(t, err, jetpull.ErrNoMessages)
	_, err = sub.Fetch(t.Context(), 10, jetpull.NoWait())
	require.ErrorIs(t, err, jetpull.ErrNoMessages)
	ackAll(t, held)
}

const twoAccounts = `
accounts {
  OWNER {
    jetstream: enabled
    users: [{user: owner, password: pw}]
    exports: [
      {service: "$JS.API.>", response: stream}
      {service: "$JS.ACK.>"}
    ]
  }
  CLIENT {
    users: [{user: client, password: pw}]
    imports: [
      {service: {account: OWNER, subject: "$JS.API.>"}, to: "far.API.>"}
      {service: {account: OWNER, subject: "$JS.ACK.>"}}
    ]
  }
}`

func TestAPIPrefixAcrossAccounts(t *testing.T) {
	t.Parallel()
	server := servertest.RunServer(t, servertest.WithConfig(twoAccounts))
	nc := server.Connect(t, nats.UserInfo("owner", "pw"))
	r := &rig{server: server, nc: nc, js: natstest.JetStream(t, nc)}
	natstest.Stream(t, r.js, "S", "s.>")
	r.consumer(t, jetstream.ConsumerConfig{AckWait: time.Minute})
	r.publish(t, 4)
	r.pending(t, 4)
	far, err := jetstream.NewWithAPIPrefix(server.Connect(t, nats.UserInfo("client", "pw")), "far.API")
	require.NoError(t, err)
	sub := subscribe(t, far, "S", "C")
	msgs := fetch(t, sub, 2)
	requireBodies(t, msgs, "1", "2")
	m, err := next(t, sub).AckNext(t.Context())
	require.NoError(t, err)
	requireBodies(t, []*jetpull.Msg{m}, "4")
	got := call(t.Context(), sub, 5, jetpull.MaxWait(forever))
	r.waiting(t, 1)
	r.publish(t, 1)
	ackAll(t, append(append(msgs, m), served(t, got, "message over the account's border")...)...)
	_, err = sub.Next(t.Context(), jetpull.MaxWait(300*time.Millisecond))
	require.ErrorIs(t, err, jetpull.ErrTimeout)
	r.ackPending(t, 0)
}
