package jetpull_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/internal/natstest"
	"github.com/jetpull/jetpull/internal/natstest/model"
	"github.com/jetpull/jetpull/internal/natstest/stage"
)

const second, milli = time.Second, time.Millisecond

// fetches are the results of calls, and their times. The server is asked to end a pull
// 100 ms before the deadline.
var fetches = map[string]struct {
	stored int // before the call
	later  int // one a second
	n      int
	ctx    time.Duration
	cancel time.Duration
	opts   []jetpull.FetchOption
	got    int
	at     time.Duration
	is     []error
	not    error
	says   string
}{
	"what is there":       {stored: 3, n: 2, got: 2},
	"less than the batch": {stored: 3, n: 10, got: 3},
	"nothing": {
		n: 10, at: 4900 * milli, is: []error{jetpull.ErrTimeout, nats.ErrTimeout}, not: context.DeadlineExceeded,
		says: "no message within 4.9s: the pull expired 100ms before the deadline: ",
	},
	"what comes first":             {later: 2, n: 10, got: 1, at: second},
	"what comes late":              {later: 1, n: 10, opts: fetching(jetpull.MaxWait(time.Minute)), got: 1, at: second},
	"the whole batch":              {stored: 1, later: 4, n: 5, opts: fetching(jetpull.FillBatch()), got: 5, at: 4 * second},
	"a part of it at the deadline": {stored: 2, n: 5, opts: fetching(jetpull.FillBatch(), jetpull.MaxWait(second)), got: 2, at: 900 * milli},
	"a part of it at the end": {
		stored: 2, n: 5, cancel: second, opts: fetching(jetpull.FillBatch(), jetpull.MaxWait(time.Minute)), got: 2,
		at: second,
	},
	"nothing now":       {n: 1, opts: fetching(jetpull.NoWait()), is: []error{jetpull.ErrNoMessages, jetstream.ErrNoMessages}},
	"what is there now": {stored: 2, n: 10, opts: fetching(jetpull.NoWait()), got: 2},
	"MaxWait": {
		n: 1, opts: fetching(jetpull.MaxWait(second)), at: 900 * milli, is: []error{jetpull.ErrTimeout},
		not: context.DeadlineExceeded,
	},
	"a short MaxWait": {
		n: 1, opts: fetching(jetpull.MaxWait(50 * milli)), at: 45 * milli, is: []error{jetpull.ErrTimeout},
		says: "no message within 45ms: the pull expired 5ms before the deadline: ",
	},
	"the context's deadline": {
		n: 1, ctx: 30 * second, at: 29900 * milli, is: []error{jetpull.ErrTimeout, context.DeadlineExceeded},
		says: "no message within 29.9s: the pull expired 100ms before the deadline: ",
	},
	"the context's before MaxWait's": {
		n: 1, ctx: second, opts: fetching(jetpull.MaxWait(2 * second)), at: 900 * milli,
		is: []error{jetpull.ErrTimeout, context.DeadlineExceeded},
	},
	"MaxWait's before the context's": {
		n: 1, ctx: 2 * second, opts: fetching(jetpull.MaxWait(second)), at: 900 * milli,
		is: []error{jetpull.ErrTimeout}, not: context.DeadlineExceeded,
	},
	"the end of the context":     {n: 1, cancel: second, at: second, is: []error{context.Canceled, errBroken}, not: jetpull.ErrTimeout},
	"a deadline that has passed": {stored: 1, n: 1, ctx: -1, is: []error{jetpull.ErrTimeout, context.DeadlineExceeded}},
	"in centuries":               {later: 20, n: 20, ctx: math.MaxInt64, opts: fetching(jetpull.FillBatch()), got: 20, at: 20 * second},
}

func TestFetch(t *testing.T) {
	for name, tt := range fetches {
		t.Run(name, at(jetstream.ConsumerConfig{}, func(t *testing.T, w *world) {
			w.Publish(tt.stored)
			c, cancelCause := context.WithCancelCause(t.Context())
			defer cancelCause(nil)
			if tt.ctx != 0 {
				var cancel context.CancelFunc
				c, cancel = context.WithTimeout(c, tt.ctx)
				defer cancel()
			}
			if tt.cancel > 0 {
				time.AfterFunc(tt.cancel, func() { cancelCause(errBroken) })
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
			}
			require.False(t, tt.not != nil && errors.Is(r.err, tt.not), "%v", r.err)
			if tt.says != "" {
				require.ErrorContains(t, r.err, tt.says)
			}
			if tt.ctx < 0 {
				require.Empty(t, w.Pulls(), "nothing is sent")
				return
			}
			require.True(t, r.err == nil || strings.Contains(r.err.Error(), `consumer "C" on stream "S"`), "%v", r.err)
			require.LessOrEqual(t, len(w.Pulls()), 3)
			require.JSONEq(t, `{"batch":`+itoa(tt.n)+`,"no_wait":true}`, string(w.Pulls()[0].Body))
		}))
	}
}

// While messages are available, a call costs one message of the client. A pull that
// waits has its own inbox for as long as it is open.
func TestWhatFetchSends(t *testing.T) {
	on(t, jetstream.ConsumerConfig{}, func(t *testing.T, w *world) {
		w.Publish(300)
		w.Peer.ResetOps()
		for range 100 {
			ms, err := w.sub.Fetch(t.Context(), 3)
			require.NoError(t, err)
			require.Len(t, ms, 3)
		}
		w.Publish(10)
		for range 10 {
			_, err := w.sub.Next(t.Context())
			require.NoError(t, err)
		}
		require.Len(t, w.Ops("PUB"), 110)
		require.Len(t, w.Ops("SUB"), 1, "the inbox of all")
		require.Empty(t, w.Ops("UNSUB"))
		_, err := w.sub.Fetch(t.Context(), 3, jetpull.MaxWait(time.Second))
		require.ErrorIs(t, err, jetpull.ErrTimeout)
		require.Len(t, w.Ops("PUB"), 112)
		require.Len(t, w.Ops("SUB"), 2)
		long := w.Pulls()[111]
		require.Equal(t, w.Ops("SUB")[1].Subject, long.Reply)
		require.False(t, w.Peer.HasInterest(long.Reply), "unsubscribed")
		require.True(t, long.Req.NoWait, "a one-shot: what comes first ends it")
		require.Equal(t, 900*time.Millisecond, long.Req.Expires)
		// Neither the memory nor the batch of a pull grows with n.
		w.Publish(3)
		ms, err := w.sub.Fetch(t.Context(), 1_000_000)
		require.NoError(t, err)
		require.Len(t, ms, 3)
		require.LessOrEqual(t, cap(ms), 128)
		require.LessOrEqual(t, w.Pulls()[112].Req.Batch, 2048)
	})
}

// slow is a link of 50 ms each way.
var slow = model.Config{
	Up:   model.Delay{Min: 50 * time.Millisecond, Max: 50 * time.Millisecond},
	Down: model.Delay{Min: 50 * time.Millisecond, Max: 50 * time.Millisecond},
}

// Callers that wait at the same time share pulls. Each pull asks for one message
// per caller, as a no-wait pull or as a long pull.
func TestSixtyFourCallersShare(t *testing.T) {
	for before, server := range map[bool]model.Config{true: slow, false: {}} {
		onStage(t, stage.Config{Model: server}, func(t *testing.T, w *world) {
			if before {
				w.Publish(64)
			}
			from, calls := w.Elapsed(), []<-chan result{}
			for range 64 {
				calls = append(calls, w.next(t.Context(), jetpull.MaxWait(10*second)))
			}
			asked, seen := 0, []int{}
			for _, p := range w.Pulls() {
				if before || p.Req.Expires > 0 {
					asked += p.Req.Batch
				}
			}
			if !before {
				w.Publish(64)
			}
			for _, call := range calls {
				r := <-call
				require.NoError(t, r.err)
				seen = append(seen, bodies(r.ms)...)
			}
			require.ElementsMatch(t, stage.UpTo(64), seen, "each has a message of its own")
			require.LessOrEqual(t, w.Elapsed()-from, 200*milli, "two round trips")
			require.LessOrEqual(t, asked, 64, "demand is covered once")
			require.True(t, !before || len(w.Pulls()) <= 16, "%d pulls", len(w.Pulls()))
		})
	}
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
		"an expiry in one": {
			"$JS.ACK.ORDERS.worker.3.77.81.1700000000123456789.5", "",
			nats.Header{"Status": {"408"}, "Nats-Pending-Messages": {"1"}, "Nats-Pending-Bytes": {"0"}},
		},
		"a deletion in one": {
			"$JS.ACK.ORDERS.worker.3.77.81.1700000000123456789.5", "",
			nats.Header{"Status": {"409"}, "Description": {"Consumer Deleted"}},
		},
		"a heartbeat in one":   {"$JS.ACK.ORDERS.worker.3.77.81.1700000000123456789.5", "", nats.Header{"Status": {"100"}}},
		"no responders in one": {"$JS.ACK.ORDERS.worker.3.77.81.1700000000123456789.5", "", nats.Header{"Status": {"503"}}},
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

// closing is Close in the background.
func (w *world) closing(ctx context.Context) <-chan result {
	return w.later(func() ([]*jetpull.Msg, error) { return nil, w.sub.Close(ctx) })
}

func TestCloseOfAnIdleSubscription(t *testing.T) {
	on(t, jetstream.ConsumerConfig{}, func(t *testing.T, w *world) {
		w.Publish(1)
		m, err := w.sub.Next(t.Context())
		require.NoError(t, err)
		for range 2 {
			require.NoError(t, w.sub.Close(t.Context()), "closing twice is fine")
		}
		require.Zero(t, w.Elapsed())
		_, next := w.sub.Next(t.Context())
		_, fetch := w.sub.Fetch(t.Context(), 2)
		_, ackNext := m.AckNext(t.Context())
		messages := error(nil)
		for _, err := range w.sub.Messages(t.Context()) {
			messages = err
		}
		consume := w.sub.Consume(t.Context(), nothing)
		for _, err := range []error{next, fetch, ackNext, messages, consume} {
			require.ErrorIs(t, err, jetpull.ErrClosed)
		}
		require.Equal(t, []int{1}, w.Acked("+ACK"), "what was handed over can still be acknowledged")
		require.Equal(t, 1, w.NC.NumSubscriptions(), "only the one of nats.go for requests is left")
	})
}

// Close does not wait for events that calls wait for, and gives up when the network
// is down.
func TestCloseOfACallThatCannotPull(t *testing.T) {
	for name, tt := range map[string]struct {
		hinder func(*world)
		most   time.Duration
	}{
		"backs off":    {func(w *world) { w.answer(503, "") }, 0},
		"disconnected": {(*world).disconnect, 0},
		"a black hole": {func(w *world) { w.Peer.Pause(true) }, 15 * time.Second},
	} {
		t.Run(name, at(jetstream.ConsumerConfig{}, func(t *testing.T, w *world) {
			tt.hinder(w)
			got := w.next(t.Context(), jetpull.MaxWait(time.Minute))
			stage.Pass(time.Second)
			start := time.Now()
			require.NoError(t, w.sub.Close(t.Context()))
			require.ErrorIs(t, (<-got).err, jetpull.ErrClosed)
			require.LessOrEqual(t, time.Since(start), tt.most)
			w.Peer.Pause(false)
		}))
	}
}

func TestCloseThatMayNotTakeLong(t *testing.T) {
	on(t, jetstream.ConsumerConfig{}, func(t *testing.T, w *world) {
		got := w.next(t.Context(), jetpull.MaxWait(time.Minute))
		stage.Pass(time.Second)
		w.Peer.Pause(true)
		w.Publish(1)
		c, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, w.sub.Close(c), context.DeadlineExceeded)
		require.Equal(t, 2*time.Second, w.Elapsed())
		require.ErrorIs(t, (<-got).err, jetpull.ErrClosed)
		w.Peer.Pause(false)
		require.Equal(t, []int{1}, w.Acked("-NAK"), "the rest goes on by itself")
	})
}

// However the loop ends, the messages that it did not get are handed back at once,
// and it keeps its current message.
func TestMessagesHandsBack(t *testing.T) {
	for name, tt := range map[string]struct {
		end func(w *world, cancel context.CancelFunc) (stop bool)
		is  error // of the last step, nil for none
	}{
		"break":   {end: func(*world, context.CancelFunc) bool { return true }},
		"panic":   {end: func(*world, context.CancelFunc) bool { panic("loop") }},
		"context": {end: func(_ *world, cancel context.CancelFunc) bool { cancel(); return false }, is: context.Canceled},
		"close": {end: func(w *world, _ context.CancelFunc) bool {
			require.NoError(w.t, w.sub.Close(w.t.Context()))
			return false
		}, is: jetpull.ErrClosed},
	} {
		t.Run(name, at(jetstream.ConsumerConfig{AckWait: time.Hour}, func(t *testing.T, w *world) {
			w.Publish(100)
			var last error
			func() {
				defer func() { require.Equal(t, name == "panic", recover() != nil) }()
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				for m, err := range w.sub.Messages(ctx, jetpull.Prefetch(30)) {
					require.NoError(t, last, "an error is the last")
					if last = err; err != nil {
						require.Nil(t, m)
						continue
					}
					synctest.Wait()
					if w.j.Note(m.Sequence()); w.j.Len() < 5 {
						require.NoError(t, m.Ack())
					} else if tt.end(w, cancel) {
						break
					}
				}
			}()
			synctest.Wait()
			require.ErrorIs(t, last, tt.is)
			require.Zero(t, w.Elapsed(), "at once")
			require.Equal(t, stage.UpTo(5), w.j.All())
			require.Equal(t, []uint64{5}, w.C().Held(), "the fifth is the caller's; all else went back")
			require.NotEmpty(t, w.Acks("-NAK"))
			require.Empty(t, w.Acks("-NAK", 5))
		}))
	}
}

func TestMessagesYieldsTheErrorOfItsContextOnce(t *testing.T) {
	on(t, jetstream.ConsumerConfig{}, func(t *testing.T, w *world) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		for _, what := range []string{"it ends while the loop waits", "it has ended before"} {
			var errs []error
			for m, err := range w.sub.Messages(ctx) {
				require.Nil(t, m, what)
				errs = append(errs, err)
			}
			require.Len(t, errs, 1, what)
			require.ErrorIs(t, errs[0], context.DeadlineExceeded, what)
		}
		require.Equal(t, time.Second, w.Elapsed())
	})
}

// With ack policy none nothing can be handed back: messages that arrive after a call
// has ended wait for the next call.
func TestAckNoneLosesNothingBetweenCalls(t *testing.T) {
	onStage(t, stage.Config{Model: slow, Consumer: jetstream.ConsumerConfig{AckPolicy: jetstream.AckNonePolicy}}, func(t *testing.T, w *world) {
		for i := range 60 {
			c, cancel := context.WithTimeout(t.Context(), time.Duration(20+i*i%170)*milli)
			go func() {
				for range 10 {
					w.Model.Publish("s.a", nil, nil)
					time.Sleep(5 * milli)
				}
			}()
			if i%2 == 0 {
				require.NoError(t, w.sub.Consume(c, taking(&w.j, 0)))
			} else {
				for m, err := range w.sub.Messages(c) {
					if err == nil {
						w.j.Note(m.Sequence())
					}
				}
			}
			cancel()
		}
		w.consume(taking(&w.j, 0))
		stage.Pass(time.Minute)
		require.Equal(t, stage.UpTo(600), w.j.All())
		require.Zero(t, w.sub.Stats().Dropped)
	})
}

// A caller that reads for all callers, and gets a message that an ending Messages hands back, returns at once.
func TestWhatIsGivenBackEndsTheCallThatReads(t *testing.T) {
	for range 50 {
		on(t, jetstream.ConsumerConfig{AckPolicy: jetstream.AckNonePolicy}, func(t *testing.T, w *world) {
			var next <-chan result
			var ended time.Duration
			w.Publish(2)
			for _, err := range w.sub.Messages(t.Context()) {
				require.NoError(t, err)
				next = w.next(t.Context(), jetpull.MaxWait(time.Minute))
				stage.Pass(500 * time.Millisecond)
				ended = w.Elapsed()
				break
			}
			r := <-next
			require.NoError(t, r.err)
			require.LessOrEqual(t, r.at-ended, time.Duration(0))
		})
	}
}
