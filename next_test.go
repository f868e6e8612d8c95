package jetpull_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/internal/natstest"
	"github.com/jetpull/jetpull/internal/natstest/model"
	"github.com/jetpull/jetpull/internal/natstest/stage"
)

// What a call returns, and when. The server is asked to end a pull 100 ms before
// the deadline.
func TestFetch(t *testing.T) {
	const second, milli = time.Second, time.Millisecond
	fill, noWait, wait := jetpull.FillBatch(), jetpull.NoWait(), jetpull.MaxWait
	for name, tt := range map[string]struct {
		stored int // before the call
		later  int // one a second
		n      int
		ctx    time.Duration
		cancel time.Duration
		opts   []jetpull.Option
		got    int
		at     time.Duration
		is     []error
		not    error
	}{
		"what is there":                  {stored: 3, n: 2, got: 2},
		"less than the batch":            {stored: 3, n: 10, got: 3},
		"nothing":                        {n: 10, at: 4900 * milli, is: []error{jetpull.ErrTimeout, nats.ErrTimeout}, not: context.DeadlineExceeded},
		"what comes first":               {later: 2, n: 10, got: 1, at: second},
		"what comes late":                {later: 1, n: 10, opts: []jetpull.Option{wait(time.Minute)}, got: 1, at: second},
		"the whole batch":                {stored: 1, later: 4, n: 5, opts: []jetpull.Option{fill}, got: 5, at: 4 * second},
		"a part of it at the deadline":   {stored: 2, n: 5, opts: []jetpull.Option{fill, wait(second)}, got: 2, at: 900 * milli},
		"a part of it at the end":        {stored: 2, n: 5, cancel: second, opts: []jetpull.Option{fill, wait(time.Minute)}, got: 2, at: second},
		"nothing now":                    {n: 1, opts: []jetpull.Option{noWait}, is: []error{jetpull.ErrNoMessages, jetstream.ErrNoMessages}},
		"what is there now":              {stored: 2, n: 10, opts: []jetpull.Option{noWait}, got: 2},
		"MaxWait":                        {n: 1, opts: []jetpull.Option{wait(second)}, at: 900 * milli, is: []error{jetpull.ErrTimeout}, not: context.DeadlineExceeded},
		"a short MaxWait":                {n: 1, opts: []jetpull.Option{wait(50 * milli)}, at: 45 * milli, is: []error{jetpull.ErrTimeout}},
		"the context's deadline":         {n: 1, ctx: 30 * second, at: 29900 * milli, is: []error{jetpull.ErrTimeout, context.DeadlineExceeded}},
		"the context's before MaxWait's": {n: 1, ctx: second, opts: []jetpull.Option{wait(2 * second)}, at: 900 * milli, is: []error{jetpull.ErrTimeout, context.DeadlineExceeded}},
		"MaxWait's before the context's": {n: 1, ctx: 2 * second, opts: []jetpull.Option{wait(second)}, at: 900 * milli, is: []error{jetpull.ErrTimeout}, not: context.DeadlineExceeded},
		"the end of the context":         {n: 1, cancel: second, at: second, is: []error{context.Canceled}, not: jetpull.ErrTimeout},
		"in centuries":                   {later: 20, n: 20, ctx: math.MaxInt64, opts: []jetpull.Option{fill}, got: 20, at: 20 * second},
	} {
		t.Run(name, at(jetstream.ConsumerConfig{}, func(t *testing.T, w *world) {
			w.Publish(tt.stored)
			c, cancel := context.WithCancel(t.Context())
			if tt.ctx > 0 {
				c, cancel = context.WithTimeout(c, tt.ctx)
			}
			defer cancel()
			if tt.cancel > 0 {
				time.AfterFunc(tt.cancel, cancel)
			}
			got := w.fetch(c, tt.n, tt.opts...)
			for range tt.later {
				stage.Pass(time.Second)
				w.Publish(1)
			}
			r := <-got
			near(t, tt.at, r.at, instant)
			require.Equal(t, stage.UpTo(tt.got), append([]int{}, bodies(r.ms)...))
			require.Equal(t, tt.got == 0, r.err != nil, "messages and an error are never returned together: %v", r.err)
			for _, is := range tt.is {
				require.ErrorIs(t, r.err, is)
				require.ErrorContains(t, r.err, `consumer "C" on stream "S"`)
			}
			require.False(t, tt.not != nil && errors.Is(r.err, tt.not), "%v", r.err)
			require.LessOrEqual(t, len(w.Pulls()), 3)
			require.JSONEq(t, `{"batch":`+itoa(tt.n)+`,"no_wait":true}`, string(w.Pulls()[0].Body))
		}))
	}
}

// While there are messages a call costs one message of the client; a pull that
// waits has an inbox of its own, for as long as it lives.
func TestWhatFetchSends(t *testing.T) {
	on(t, jetstream.ConsumerConfig{}, func(t *testing.T, w *world) {
		w.Publish(300)
		w.Peer.ResetOps()
		for range 100 {
			ms, err := w.sub.Fetch(t.Context(), 3)
			require.NoError(t, err)
			require.Len(t, ms, 3)
		}
		require.Len(t, w.Ops("PUB"), 100)
		require.Empty(t, w.Ops("SUB"))
		require.Empty(t, w.Ops("UNSUB"))
		_, err := w.sub.Fetch(t.Context(), 3, jetpull.MaxWait(time.Second))
		require.ErrorIs(t, err, jetpull.ErrTimeout)
		require.Len(t, w.Ops("PUB"), 102)
		require.Len(t, w.Ops("SUB"), 1)
		long := w.Pulls()[101]
		require.Equal(t, w.Ops("SUB")[0].Subject, long.Reply)
		require.False(t, w.Peer.HasInterest(long.Reply), "unsubscribed")
		require.True(t, long.Req.NoWait, "a one-shot: what comes first ends it")
		require.Equal(t, 900*time.Millisecond, long.Req.Expires)
		// n is not what memory is taken for, nor what a pull asks for at once.
		w.Publish(3)
		ms, err := w.sub.Fetch(t.Context(), 1_000_000)
		require.NoError(t, err)
		require.Len(t, ms, 3)
		require.LessOrEqual(t, cap(ms), 128)
		require.LessOrEqual(t, w.Pulls()[102].Req.Batch, 4096)
	})
}

// slow is a link of 50 ms each way.
var slow = model.Config{
	Up:   model.Delay{Min: 50 * time.Millisecond, Max: 50 * time.Millisecond},
	Down: model.Delay{Min: 50 * time.Millisecond, Max: 50 * time.Millisecond},
}

// Callers that wait at the same time share pulls, which ask for one message for
// each of them.
func TestSixtyFourCallersShare(t *testing.T) {
	for _, before := range []bool{true, false} {
		server := model.Config{}
		if before {
			server = slow
		}
		onStage(t, stage.Config{Model: server}, func(t *testing.T, w *world) {
			if before {
				w.Publish(64)
			}
			from, asked, seen := w.Elapsed(), 0, []int{}
			var calls []<-chan result
			for range 64 {
				calls = append(calls, w.next(t.Context(), jetpull.MaxWait(10*time.Second)))
			}
			if !before {
				stage.Pass(time.Second)
				w.Publish(64)
				from = w.Elapsed()
			}
			for _, call := range calls {
				r := <-call
				require.NoError(t, r.err)
				seen = append(seen, bodies(r.ms)...)
			}
			require.LessOrEqual(t, w.Elapsed()-from, 200*time.Millisecond, "two round trips at most")
			require.ElementsMatch(t, stage.UpTo(64), seen, "each has a message of its own")
			for _, p := range w.Pulls() {
				if before || p.Req.Expires > 0 {
					asked += p.Req.Batch
				}
			}
			require.Equal(t, 64, asked, "demand is covered once")
			require.True(t, !before || len(w.Pulls()) <= 16, "%d pulls", len(w.Pulls()))
			require.Empty(t, w.Acks("-NAK"))
		})
	}
}

// Callers that read for others leave, by their deadlines or contexts; those who
// stay lose nothing.
func TestCallersThatLeave(t *testing.T) {
	on(t, jetstream.ConsumerConfig{}, func(t *testing.T, w *world) {
		w.TakePulls(stage.All)
		c, cancel := context.WithCancel(t.Context())
		time.AfterFunc(1500*time.Millisecond, cancel)
		var calls []<-chan result
		waits := []time.Duration{time.Second, 3 * time.Second, 500 * time.Millisecond}
		for _, wait := range waits {
			calls = append(calls, w.next(t.Context(), jetpull.MaxWait(wait)))
		}
		left, stays := w.next(c, jetpull.MaxWait(time.Minute)), w.next(t.Context(), jetpull.MaxWait(time.Minute))
		for i, wait := range waits {
			r := <-calls[i]
			require.ErrorIs(t, r.err, jetpull.ErrTimeout)
			require.Equal(t, wait, r.at)
		}
		r := <-left
		require.ErrorIs(t, r.err, context.Canceled)
		require.Equal(t, 1500*time.Millisecond, r.at)
		w.TakePulls(nil)
		w.Publish(1)
		require.NoError(t, (<-stays).err)
	})
}

func TestMessageAccessors(t *testing.T) {
	status := nats.Header{"Status": {"404"}, "Description": {"No Messages"}}
	for name, tt := range map[string]struct {
		reply, domain string
		header        nats.Header
	}{
		"v1":                   {"$JS.ACK.ORDERS.worker.3.77.81.1700000000123456789.5", "", nats.Header{"K": {"v"}}},
		"v2":                   {"$JS.ACK.hub.ACCHASH.ORDERS.worker.3.77.81.1700000000123456789.5.token", "hub", nats.Header{"K": {"v"}}},
		"no domain":            {"$JS.ACK._.ACCHASH.ORDERS.worker.3.77.81.1700000000123456789.5", "", nil},
		"a status in a header": {"$JS.ACK.ORDERS.worker.3.77.81.1700000000123456789.5", "", status},
		"not of JetStream":     {"somewhere.else", "none", nil},
	} {
		t.Run(name, at(jetstream.ConsumerConfig{}, func(t *testing.T, w *world) {
			w.TakePulls(func(p stage.Pull) bool {
				return w.Peer.Deliver(p.Reply, natstest.Data{Subject: "orders.1", AckReply: tt.reply, Header: tt.header, Body: []byte("data")})
			})
			got, err := w.sub.Next(t.Context(), jetpull.NoWait())
			require.NoError(t, err)
			var m jetstream.Msg = got
			require.Equal(t, []any{"orders.1", tt.reply, "data", tt.header}, []any{m.Subject(), m.Reply(), string(m.Data()), m.Headers()})
			meta, err := m.Metadata()
			if tt.domain == "none" {
				require.ErrorIs(t, err, jetstream.ErrNotJSMessage)
				require.ErrorContains(t, err, tt.reply)
				require.Zero(t, got.Sequence()+got.Delivered())
				return
			}
			require.NoError(t, err)
			require.Equal(t, &jetstream.MsgMetadata{
				Sequence: jetstream.SequencePair{Consumer: 81, Stream: 77}, NumDelivered: 3, NumPending: 5,
				Timestamp: time.Unix(0, 1700000000123456789), Stream: "ORDERS", Consumer: "worker", Domain: tt.domain,
			}, meta)
			require.Zero(t, testing.AllocsPerRun(100, func() {
				if got.Sequence() != 77 || got.Delivered() != 3 {
					t.Fail()
				}
			}))
		}))
	}
}

func TestCancelBeforeACall(t *testing.T) {
	on(t, jetstream.ConsumerConfig{}, func(t *testing.T, w *world) {
		w.Publish(1)
		late, cancel := context.WithTimeout(t.Context(), -1)
		defer cancel()
		_, err := w.sub.Fetch(late, 5)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, jetpull.ErrTimeout)
		cause := errors.New("the reason")
		caused, cancelCause := context.WithCancelCause(t.Context())
		cancelCause(cause)
		_, err = w.sub.Next(caused)
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorIs(t, err, cause)
		require.NotErrorIs(t, err, jetpull.ErrTimeout)
		require.Empty(t, w.Pulls(), "nothing is sent")
	})
}

// A caller that leaves takes its pull away at once. What is on the wire for it
// goes to the next caller, or back.
func TestCancelWithAMessageOnTheWire(t *testing.T) {
	explicit, none, all := jetstream.AckExplicitPolicy, jetstream.AckNonePolicy, jetstream.AckAllPolicy
	for name, tt := range map[string]struct {
		policy  jetstream.AckPolicy
		another bool
	}{
		"nobody waits": {explicit, false}, "another waits": {explicit, true}, "ack policy none": {none, false}, "ack policy all": {all, false},
	} {
		t.Run(name, at(jetstream.ConsumerConfig{AckPolicy: tt.policy}, func(t *testing.T, w *world) {
			c, cancel := context.WithCancel(t.Context())
			got := w.next(c, jetpull.MaxWait(time.Minute))
			stage.Pass(time.Second)
			inbox := w.Pulls()[1].Reply
			require.True(t, w.Peer.HasInterest(inbox))
			w.Peer.Pause(true)
			w.Publish(1)
			cancel()
			require.ErrorIs(t, (<-got).err, context.Canceled)
			var other <-chan result
			if tt.another {
				other = w.next(t.Context(), jetpull.MaxWait(time.Minute))
			}
			w.Peer.Pause(false)
			stage.Pass(0)
			require.False(t, w.Peer.HasInterest(inbox), "unsubscribed without any time passing")
			handedBack := tt.policy != none && !tt.another
			require.Equal(t, handedBack, slices.Equal([]int{1}, w.Acked("-NAK")))
			require.Equal(t, handedBack, w.sub.Stats().HandedBack == 1)
			if other == nil {
				other = w.next(t.Context(), jetpull.NoWait())
			}
			r := <-other
			require.NoError(t, r.err)
			require.EqualValues(t, 1, r.ms[0].Sequence())
			require.Zero(t, w.sub.Stats().Dropped)
		}))
	}
}
