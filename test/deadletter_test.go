package test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/internal/natstest"
	"github.com/jetpull/jetpull/internal/natstest/model"
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

func TestDeadLetters(t *testing.T) {
	t.Parallel()
	const messages = 40
	r := newRig(t)
	natstest.Stream(t, r.js, "DEAD", "dead.>")
	sub := r.subscribe(t, jetstream.ConsumerConfig{MaxDeliver: 3})
	for i := range messages {
		require.True(t, publishOnce(t, r.js, "s.a", fmt.Sprint(i+1)))
	}
	var tries tally
	run := consume(t, sub, func(_ context.Context, m *jetpull.Msg) error {
		tries.add(string(m.Data()))
		if m.Sequence()%4 == 0 {
			return errNoUse
		}
		return nil
	}, jetpull.Concurrency(3), jetpull.MaxAttempts(3), jetpull.DeadLetter("dead.letters"), jetpull.RetryDelays(0, 50*time.Millisecond))
	consumerHas(t, r.js, "S", "C", func(i *jetstream.ConsumerInfo) bool { return i.AckFloor.Stream == messages }, "all are settled")
	run.end(t)
	require.Equal(t, messages, tries.len())
	dead, err := r.js.Stream(t.Context(), "DEAD")
	require.NoError(t, err)
	require.EqualValues(t, messages/4, dead.CachedInfo().State.Msgs)
	seen := map[string]bool{}
	for seq := range uint64(messages / 4) {
		m, err := dead.GetMsg(t.Context(), seq+1)
		require.NoError(t, err)
		of := m.Header.Get(jetpull.HeaderDeadSequence)
		require.Equal(t, of, string(m.Data), "payload of the original")
		require.Equal(t, of, m.Header.Get(jetpull.HeaderDeadMsgID))
		require.Equal(t, "no use", m.Header.Get(jetpull.HeaderDeadReason))
		require.Equal(t, "3", m.Header.Get(jetpull.HeaderDeadAttempts))
		require.Equal(t, "S C s.a", m.Header.Get(jetpull.HeaderDeadStream)+" "+m.Header.Get(jetpull.HeaderDeadConsumer)+" "+m.Header.Get(jetpull.HeaderDeadSubject))
		require.False(t, seen[of], "message %s has two dead letters", of)
		seen[of] = true
	}
}

func TestDeadLetterOfAConsumerWithHeadersOnly(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		cfg  jetstream.StreamConfig
		gone bool // by the time that the handler has failed
	}{
		"limits":                {jetstream.StreamConfig{}, false},
		"direct gets":           {jetstream.StreamConfig{AllowDirect: true}, false},
		"work queue":            {jetstream.StreamConfig{Retention: jetstream.WorkQueuePolicy}, false},
		"it is no longer there": {jetstream.StreamConfig{}, true},
		"nor in a work queue":   {jetstream.StreamConfig{Retention: jetstream.WorkQueuePolicy}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newServer(t)
			cfg := tc.cfg
			cfg.Name, cfg.Subjects = "S", []string{"s.>"}
			stream := natstest.StreamWith(t, r.js, cfg)
			natstest.Stream(t, r.js, "DEAD", "dead.>")
			sub := r.subscribe(t, jetstream.ConsumerConfig{HeadersOnly: true, AckWait: time.Minute})
			for _, body := range []string{"the payload", ""} {
				_, err := r.js.PublishMsg(t.Context(), &nats.Msg{Subject: "s.a", Header: nats.Header{"Trace": {"t1"}}, Data: []byte(body)})
				require.NoError(t, err)
			}
			dead := r.failing(t, sub, 2, func(m *jetpull.Msg) {
				require.Empty(t, m.Data())
				if tc.gone {
					require.NoError(t, stream.DeleteMsg(t.Context(), m.Sequence()))
				}
			})
			full, empty := dead[0], dead[1]
			require.Equal(t, "t1", full.Header.Get("Trace"))
			require.Equal(t, "no use", full.Header.Get(jetpull.HeaderDeadReason))
			require.Empty(t, full.Header.Get("Nats-Msg-Size"), "the copy says nothing of what was left out")
			require.Empty(t, empty.Data)
			require.Empty(t, empty.Header.Get(jetpull.HeaderDeadPayload), "nothing is missing")
			if tc.gone {
				require.Empty(t, full.Data)
				require.Equal(t, "gone", full.Header.Get(jetpull.HeaderDeadPayload))
				return
			}
			require.Equal(t, "the payload", string(full.Data))
			require.Empty(t, full.Header.Get(jetpull.HeaderDeadPayload))
		})
	}
}

// TestDeadLetterLoop: a subject that the consumer's own stream stores is refused, and
// so is one that no stream stores. A copy that comes back another way is warned of.
func TestDeadLetterLoop(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	sub := r.subscribe(t, jetstream.ConsumerConfig{})
	for subject, says := range map[string]string{"s.dead": "loop", "nobody.stores": "no stream"} {
		err := sub.Consume(t.Context(), nothing, jetpull.MaxAttempts(1), jetpull.DeadLetter(subject))
		require.ErrorIs(t, err, jetpull.ErrInvalidOption)
		require.ErrorContains(t, err, says)
	}
	var book logBook
	natstest.Stream(t, r.js, "DEAD", "dead.>")
	run := consume(t, sub, nothing, jetpull.MaxAttempts(1), jetpull.DeadLetter("dead.s"), jetpull.Logger(slog.New(&book)))
	header := nats.Header{jetpull.HeaderDeadReason: {"no use"}, jetpull.HeaderDeadStream: {"S"}, jetpull.HeaderDeadConsumer: {"C"}, jetpull.HeaderDeadSequence: {"1"}}
	_, err := r.js.PublishMsg(t.Context(), &nats.Msg{Subject: "s.a", Header: header})
	require.NoError(t, err)
	reaches(t, 1, "warnings of a dead letter of this consumer that comes back", func() int {
		return len(book.with(slog.LevelWarn, "dead letter"))
	})
	run.end(t)
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

// TestALastDeliveryIsNotLost while its dead letter cannot be stored: the message is
// kept in progress and tried until it can, or until the drain ends, and is then
// handed back and reported.
func TestALastDeliveryIsNotLost(t *testing.T) {
	const outage = time.Minute
	for _, ends := range []bool{false, true} {
		t.Run(fmt.Sprintf("Consume ends before, %t", ends), func(t *testing.T) {
			virtually(t, jetstream.ConsumerConfig{MaxDeliver: 1, AckWait: time.Second}, func(t *testing.T, w *world) {
				told := make(chan error, 1000)
				var calls calls
				w.model.LosePublishes("DEAD", 1)
				run := consume(t, w.sub, calls.fails(1, errNoUse), jetpull.MaxAttempts(1), jetpull.DeadLetter("dead.s"),
					jetpull.DrainTimeout(10*time.Second), jetpull.OnError(func(err error) { told <- err }))
				w.publish("s.a", 1)
				pass(outage)
				require.Empty(t, w.events(1, model.Acked, model.Termed, model.Naked, model.Exceeded))
				if ends {
					run.stop()
					require.ErrorIs(t, receive(t, run.done, "end of Consume"), jetpull.ErrDrainTimeout)
					require.NotEmpty(t, w.events(1, model.Naked), "it is handed back")
					require.NotEmpty(t, told)
					return
				}
				w.model.LosePublishes("DEAD", 0)
				w.settled()
				require.NotEmpty(t, w.events(1, model.Termed))
				require.Equal(t, 1, w.model.Messages("DEAD"), "one copy, however often it was tried")
				require.Equal(t, 1, calls.len())
				run.end(t)
			})
		})
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
