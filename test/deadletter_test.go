package test

import (
	"context"
	"fmt"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/internal/natstest"
)

// failing runs a Consume whose handler fails each message until a dead letter
// of each is stored, and returns those.
func (r *rig) failing(t *testing.T, sub *jetpull.Subscription, n int, before func(*jetpull.Msg)) []*jetstream.RawStreamMsg {
	t.Helper()
	run := consume(t, sub, func(_ context.Context, m *jetpull.Msg) error {
		before(m)
		return errNoUse
	}, jetpull.MaxAttempts(1), jetpull.DeadLetter("dead.s"))
	dead, err := r.js.Stream(t.Context(), "DEAD")
	require.NoError(t, err)
	eventually(t, func() error {
		info, err := dead.Info(t.Context())
		if err == nil && info.State.Msgs != uint64(n) {
			err = fmt.Errorf("%d dead letters", info.State.Msgs)
		}
		return err
	}, "%d dead letters", n)
	r.ackPending(t, 0)
	run.end(t)
	var all []*jetstream.RawStreamMsg
	for seq := range uint64(n) {
		m, err := dead.GetMsg(t.Context(), seq+1)
		require.NoError(t, err)
		all = append(all, m)
	}
	return all
}

// TestNoDeadLetterWithoutPayload: a consumer that delivers headers only has no dead letters.
func TestNoDeadLetterWithoutPayload(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	sub := r.subscribe(t, jetstream.ConsumerConfig{HeadersOnly: true})
	err := sub.Consume(t.Context(), func(context.Context, *jetpull.Msg) error { return nil }, jetpull.MaxAttempts(1), jetpull.DeadLetter("dead.s"))
	require.ErrorIs(t, err, jetpull.ErrInvalidOption)
	require.ErrorContains(t, err, "headers only")
}

// TestDeadLetterWithoutPermissionToLook: who may not read the streams'
// configuration may still have dead letters.
func TestDeadLetterWithoutPermissionToLook(t *testing.T) {
	t.Parallel()
	js, _, _ := deniable(t, "$JS.API.STREAM.INFO.S")
	natstest.Stream(t, js, "DEAD", "dead.>")
	r := &rig{nc: js.Conn(), js: js}
	require.Len(t, r.failing(t, subscribe(t, js, "S", "C"), 3, func(*jetpull.Msg) {}), 3)
}

// TestDeadLetterOfAStreamThatIsRecreated: its messages have the sequences of others
// whose dead letters are stored already, and are other messages.
func TestDeadLetterOfAStreamThatIsRecreated(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	natstest.Stream(t, r.js, "DEAD", "dead.>")
	for n, body := range []string{"first", "second"} {
		sub := r.subscribe(t, jetstream.ConsumerConfig{})
		_, err := r.js.Publish(t.Context(), "s.a", []byte(body))
		require.NoError(t, err)
		dead := r.failing(t, sub, n+1, func(m *jetpull.Msg) { require.EqualValues(t, 1, m.Sequence()) })
		require.Equal(t, body, string(dead[n].Data))
		require.Equal(t, "1", dead[n].Header.Get(jetpull.HeaderDeadSequence))
		require.NoError(t, sub.Close(t.Context()))
		require.NoError(t, r.js.DeleteStream(t.Context(), "S"))
		natstest.Stream(t, r.js, "S", "s.>")
	}
}

// A copy whose headers take it over max_payload is stored without the payload.
func TestDeadLetterOfTheLargestPayload(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	natstest.Stream(t, r.js, "DEAD", "dead.>")
	sub := r.subscribe(t, jetstream.ConsumerConfig{})
	_, err := r.js.Publish(t.Context(), "s.a", make([]byte, r.nc.MaxPayload()))
	require.NoError(t, err)
	dead := r.failing(t, sub, 1, func(*jetpull.Msg) {})
	require.Equal(t, "too large", dead[0].Header.Get(jetpull.HeaderDeadPayload))
	require.Empty(t, dead[0].Data)
	require.Zero(t, sub.Stats().Redelivered)
}
