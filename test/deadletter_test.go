package test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
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
		return errors.New("no use")
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
			server := natstest.RunServer(t)
			nc := server.Connect(t)
			r := &rig{server: server, nc: nc, js: natstest.JetStream(t, nc)}
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

// TestDeadLetterLoopThroughAnotherStream: the stream takes over what the stream
// of the dead letters stores, directly or not.
func TestDeadLetterLoopThroughAnotherStream(t *testing.T) {
	t.Parallel()
	from := func(name, filter string, transforms ...jetstream.SubjectTransformConfig) []*jetstream.StreamSource {
		return []*jetstream.StreamSource{{Name: name, FilterSubject: filter, SubjectTransforms: transforms}}
	}
	to := func(source, destination string) jetstream.SubjectTransformConfig {
		return jetstream.SubjectTransformConfig{Source: source, Destination: destination}
	}
	dead := jetstream.StreamConfig{Name: "DEAD", Subjects: []string{"dead.>"}}
	s := func(sources []*jetstream.StreamSource) jetstream.StreamConfig {
		return jetstream.StreamConfig{Name: "S", Subjects: []string{"s.>"}, Sources: sources}
	}
	const takenOver = `stream "S" takes it over from stream "DEAD"`
	for name, tc := range map[string]struct {
		streams []jetstream.StreamConfig // the last is consumed
		filter  string
		loop    bool
		says    string
	}{
		"the stream's own transform": {
			[]jetstream.StreamConfig{{Name: "S", Subjects: []string{"s.>", "dead.>"}, SubjectTransform: &jetstream.SubjectTransformConfig{Source: "dead.>", Destination: "s.dead.>"}}},
			"s.>", true, `stream "S" stores it under another subject`,
		},
		"the transform of the dead letters' stream": {
			[]jetstream.StreamConfig{
				{Name: "DEAD", Subjects: []string{"dead.>"}, SubjectTransform: &jetstream.SubjectTransformConfig{Source: "dead.>", Destination: "s.dead.>"}},
				s(from("DEAD", "s.>")),
			}, "s.>", true, takenOver,
		},
		"a transform of other subjects": {
			[]jetstream.StreamConfig{dead, {
				Name: "S", Subjects: []string{"s.>"}, Sources: from("DEAD", ""),
				SubjectTransform: &jetstream.SubjectTransformConfig{Source: "s.x", Destination: "s.y"},
			}}, "s.>", false, "",
		},
		"sources":                       {[]jetstream.StreamConfig{dead, s(from("DEAD", ""))}, "", true, takenOver},
		"mirror":                        {[]jetstream.StreamConfig{dead, {Name: "S", Mirror: from("DEAD", "")[0]}}, "", true, takenOver},
		"through a stream between":      {[]jetstream.StreamConfig{dead, {Name: "MID", Sources: from("DEAD", "")}, s(from("MID", "dead.*"))}, "", true, takenOver},
		"within the consumer's filter":  {[]jetstream.StreamConfig{dead, s(from("DEAD", ""))}, "dead.>", true, takenOver},
		"by another subject":            {[]jetstream.StreamConfig{dead, s(from("DEAD", "", to("dead.>", "s.again.>")))}, "s.again.*", true, takenOver},
		"outside the source's filter":   {[]jetstream.StreamConfig{dead, s(from("DEAD", "dead.other"))}, "", false, ""},
		"outside the consumer's filter": {[]jetstream.StreamConfig{dead, s(from("DEAD", ""))}, "s.>", false, ""},
		"another stream's source":       {[]jetstream.StreamConfig{dead, {Name: "OTHER", Subjects: []string{"o.>"}}, s(from("OTHER", ""))}, "", false, ""},
		"a source that is not there":    {[]jetstream.StreamConfig{dead, s(from("NONE", ""))}, "", false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := natstest.RunServer(t)
			nc := server.Connect(t)
			r := &rig{server: server, nc: nc, js: natstest.JetStream(t, nc)}
			for _, cfg := range tc.streams {
				natstest.StreamWith(t, r.js, cfg)
			}
			r.consumer(t, jetstream.ConsumerConfig{FilterSubject: tc.filter})
			sub := subscribe(t, r.js, "S", "C")
			if !tc.loop {
				r.publish(t, 1)
				r.failing(t, sub, 1, func(*jetpull.Msg) {})
				return
			}
			err := sub.Consume(t.Context(), func(context.Context, *jetpull.Msg) error { return nil },
				jetpull.MaxAttempts(1), jetpull.DeadLetter("dead.s"))
			requireIs(t, err, jetpull.ErrInvalidOption)
			require.ErrorContains(t, err, "DeadLetter")
			require.ErrorContains(t, err, tc.says)
			require.Zero(t, sub.Stats().Pulls, "nothing is sent")
		})
	}
}

// TestDeadLetterWithoutPermissionToLook: who may not read the streams'
// configuration may still have dead letters.
func TestDeadLetterWithoutPermissionToLook(t *testing.T) {
	t.Parallel()
	js, _, _ := deniedThenAllowed(t, "$JS.API.STREAM.INFO.S")
	natstest.Stream(t, js, "DEAD", "dead.>")
	r := &rig{nc: js.Conn(), js: js}
	sub := subscribe(t, js, "S", "C")
	require.Len(t, r.failing(t, sub, 3, func(*jetpull.Msg) {}), 3)
}

// TestDeadLetterOfAStreamMadeAnew: its messages have the sequences of others
// whose dead letters are stored already, and are other messages.
func TestDeadLetterOfAStreamMadeAnew(t *testing.T) {
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
