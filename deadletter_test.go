package jetpull_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/internal/natstest/stage"
)

var bySubject = jetpull.OrderedBy((*jetpull.Msg).Subject)

func TestDeadLetter(t *testing.T) {
	on(t, jetstream.ConsumerConfig{}, func(t *testing.T, w *world) {
		w.Model.AddStream("D", "dead.>")
		w.PublishTo("s.order", nats.Header{"Trace": {"t1"}, "Nats-Msg-Id": {"id-7"}, "Nats-Expected-Stream": {"S"}}, "payload")
		w.consume(func(ctx, *jetpull.Msg) error { panic("does\nnot work") }, jetpull.MaxAttempts(2), jetpull.DeadLetter("dead.letters"),
			jetpull.RetryDelays(0))
		stage.Pass(time.Minute)
		require.Len(t, w.Acks("+TERM", 1), 1)
		require.NotContains(t, fmt.Sprint(w.Ops("PUB")), "STREAM.INFO", "who may not read streams has dead letters too")
		dead := w.Model.Message("D", 1)
		require.Equal(t, "payload", string(dead.Body))
		require.Equal(t, nats.Header{
			"Trace": {"t1"}, "Nats-Msg-Id": {fmt.Sprintf("S:C:1:%d", w.Start.UnixNano())},
			jetpull.HeaderDeadMsgID: {"id-7"}, jetpull.HeaderDeadStream: {"S"}, jetpull.HeaderDeadSequence: {"1"},
			jetpull.HeaderDeadSubject: {"s.order"}, jetpull.HeaderDeadConsumer: {"C"}, jetpull.HeaderDeadAttempts: {"2"},
			jetpull.HeaderDeadReason: {"the handler panicked: does not work"}, // without the stack
		}, dead.Header)
		// A copy whose headers take it over max_payload is stored without the payload.
		w.PublishTo("s.order", nil, strings.Repeat("x", int(w.NC.MaxPayload())))
		stage.Pass(time.Minute)
		require.Empty(t, w.C().Unsettled())
		dead = w.Model.Message("D", 2)
		require.Equal(t, "too large", dead.Header.Get(jetpull.HeaderDeadPayload))
		require.Empty(t, dead.Body)
		// A copy whose own headers exceed it has neither payload nor those headers.
		w.PublishTo("s.order", nats.Header{"Trace": {strings.Repeat("x", int(w.NC.MaxPayload())-100)}}, "payload")
		stage.Pass(time.Minute)
		require.Empty(t, w.C().Unsettled())
		dead = w.Model.Message("D", 3)
		require.Equal(t, "too large", dead.Header.Get(jetpull.HeaderDeadHeaders))
		require.Empty(t, dead.Header.Get("Trace"))
		require.Empty(t, dead.Body)
	})
}

func TestDeadLettersThatWouldComeBackAreRefused(t *testing.T) {
	for name, tc := range map[string]struct {
		subject, says string
		filters       []string
		fine          bool
	}{
		"nobody stores it":         {"gone.letters", "no stream", nil, false},
		"the consumer delivers it": {"s.dead", "loop", nil, false},
		"within the filter":        {"s.dead", "loop", []string{"t.*", "s.>"}, false},
		"a wildcard in its place":  {"s.dead", "loop", []string{"s.*"}, false},
		"outside the filter":       {"s.dead", "", []string{"s.a"}, true},
		"outside a deeper one":     {"s.dead", "", []string{"s.*.x"}, true},
		"in another stream":        {"dead.letters", "", nil, true},
	} {
		t.Run(name, at(jetstream.ConsumerConfig{FilterSubjects: tc.filters}, func(t *testing.T, w *world) {
			w.Model.AddStream("D", "dead.>")
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			err := w.sub.Consume(ctx, nothing, jetpull.MaxAttempts(1), jetpull.DeadLetter(tc.subject))
			if tc.fine {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, jetpull.ErrInvalidOption)
			require.ErrorContains(t, err, tc.says)
			require.ErrorContains(t, err, tc.subject)
			require.Empty(t, w.Pulls())
		}))
	}
}

// Consume warns once if the server may end messages without a dead letter. This takes another request, and only with MaxDeliver.
func TestDeadLettersWithMaxDeliver(t *testing.T) {
	for name, tt := range map[string]struct {
		maxDeliver, asked, warned int
		keeps                     string
	}{
		"without":           {asked: 1},
		"not kept":          {maxDeliver: 3, asked: 2, warned: 1},
		"kept":              {maxDeliver: 3, asked: 2, keeps: "$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.>"},
		"kept for others":   {maxDeliver: 3, asked: 2, warned: 1, keeps: "$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.OTHER.>"},
		"kept for itself":   {maxDeliver: 3, asked: 2, keeps: "$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.S.C"},
		"kept among others": {maxDeliver: 3, asked: 2, keeps: "$JS.EVENT.>"},
	} {
		t.Run(name, at(jetstream.ConsumerConfig{MaxDeliver: tt.maxDeliver}, func(t *testing.T, w *world) {
			w.Model.AddStream("D", "dead.>")
			if tt.keeps != "" {
				w.Model.AddStream("A", tt.keeps)
			}
			r := w.consume(nothing, jetpull.MaxAttempts(1), jetpull.DeadLetter("dead.letters"))
			stage.Pass(time.Minute)
			require.NoError(t, r.stop())
			require.Len(t, w.Logs.With("level=WARN", "no stream keeps its advisories", "max_deliver=3"), tt.warned)
			require.Equal(t, tt.asked, strings.Count(fmt.Sprint(w.Ops("PUB")), "STREAM.NAMES"))
		}))
	}
}

// Consume reports messages at their last delivery that it has read ahead and cannot handle within DrainTimeout, because the server
// does not deliver them again.
func TestLastDeliveriesThatAreNotHandledAreReported(t *testing.T) {
	on(t, jetstream.ConsumerConfig{MaxDeliver: 1}, func(t *testing.T, w *world) {
		w.Publish(5)
		r := w.consume(func(ctx ctx, m *jetpull.Msg) error { w.j.Note(m.Sequence()); <-ctx.Done(); return nil }, jetpull.DrainTimeout(time.Second),
			jetpull.Prefetch(5))
		stage.Pass(10 * time.Millisecond)
		err := r.stop()
		require.ErrorIs(t, err, jetpull.ErrDrainTimeout)
		require.ErrorContains(t, err, "4 messages at their last delivery")
		require.Equal(t, []int{1}, w.j.All())
		stage.Pass(time.Second)
		require.Len(t, r.errs.all(), 4)
		require.ErrorContains(t, r.errs.all()[0], "stream sequence 2")
	})
}

// A message that its handler settles while HandlerTimeout passes does not also fail.
func TestHandlerTimeoutWhileTheHandlerSettles(t *testing.T) {
	on(t, jetstream.ConsumerConfig{}, func(t *testing.T, w *world) {
		w.Model.AddStream("D", "dead.>")
		w.Publish(1)
		r := w.consume(func(c ctx, m *jetpull.Msg) error {
			_, err := m.AckNext(context.WithoutCancel(c), jetpull.MaxWait(2*time.Second))
			return err
		}, jetpull.HandlerTimeout(time.Second), jetpull.MaxAttempts(1), jetpull.DeadLetter("dead.letters"))
		stage.Pass(5 * time.Second)
		require.NoError(t, r.stop())
		require.Zero(t, w.Model.Messages("D"))
		require.Zero(t, w.sub.Stats().Failed)
		require.Empty(t, w.C().Unsettled())
		require.Len(t, r.errs.all(), 1, "of the timeout")
	})
}

// The results of handlers after Close are reported like all others.
func TestEventsAfterClose(t *testing.T) {
	on(t, jetstream.ConsumerConfig{}, func(t *testing.T, w *world) {
		w.Publish(1)
		var events atomic.Int32
		r := w.consume(func(ctx, *jetpull.Msg) error {
			<-time.After(time.Second)
			return errBroken
		}, jetpull.OnEvent(func(jetpull.Event) { events.Add(1) }))
		other := w.subscribe(w.JS)
		problems := w.consumeOn(other, func(ctx, *jetpull.Msg) error {
			<-time.After(time.Second)
			return errBroken
		})
		w.Publish(1)
		stage.Pass(time.Millisecond)
		require.NoError(t, w.sub.Close(t.Context()))
		stage.Pass(time.Millisecond) // the other one begins with the message that the first has handed back
		require.NoError(t, other.Close(t.Context()))
		require.ErrorIs(t, r.result(), jetpull.ErrClosed)
		require.ErrorIs(t, problems.result(), jetpull.ErrClosed)
		require.EqualValues(t, 1, events.Load())
		require.Len(t, problems.errs.all(), 1)
	})
}
