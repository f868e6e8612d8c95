package jetpull_test

import (
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/internal/natstest/model"
	"github.com/jetpull/jetpull/internal/natstest/stage"
)

// said is how many lines were logged, but for those that only a debugger reads.
func (w *world) said() int { return len(w.Logs.With("level=")) - len(w.Logs.With("level=DEBUG")) }

func countIs(errs []error, target error) (n int) {
	for _, err := range errs {
		if errors.Is(err, target) {
			n++
		}
	}
	return n
}

// The server refuses to serve for a while in every way it has. Few requests go
// out meanwhile, and messages flow soon after it is possible.
func TestConsumeBacksOffAndComesBack(t *testing.T) {
	for _, tc := range []struct {
		code int
		text string
		is   error
		back time.Duration
	}{
		{503, "", jetpull.ErrNoResponders, time.Second},
		{409, "Leadership Change", jetpull.ErrLeadershipChanged, time.Second},
		{409, "Server Shutdown", jetpull.ErrServerShutdown, time.Second},
		{409, "Exceeded MaxWaiting", jetpull.ErrMaxWaiting, 6 * time.Second},
		{409, "Something New", jetpull.ErrTimeout, 6 * time.Second},
		{499, "Something New", jetpull.ErrTimeout, 6 * time.Second},
	} {
		t.Run(fmt.Sprint(tc.code, " ", tc.text), at(jetstream.ConsumerConfig{}, func(t *testing.T, w *world) {
			w.Publish(10)
			r := w.consume(taking(&w.j, 0))
			for round := range 3 {
				stage.Pass(time.Minute)
				from, said, before := time.Now(), w.said(), len(r.errs.all())
				w.answer(tc.code, tc.text)
				w.C().EndPulls(tc.code, tc.text)
				stage.Pass(20 * time.Second)
				w.bounded(from, 6)
				tries := int(20 * time.Second / max(tc.back, time.Second))
				require.GreaterOrEqual(t, len(w.PullsSince(from)), tries, "it goes on trying, or it could not be back in time")
				require.GreaterOrEqual(t, countIs(r.errs.all()[before:], tc.is), tries, "OnError hears of each")
				require.Equal(t, said+1, w.said(), "one line a change: %v", w.Logs.With(""))
				w.TakePulls(nil)
				w.Publish(10)
				w.soon(tc.back, "pulling again takes too long", func() bool { return w.j.Len() == 20+10*round })
				stage.Pass(time.Second)
				require.Equal(t, said+2, w.said(), "its end is one line: %v", w.Logs.With(""))
			}
			require.True(t, r.running())
			require.NoError(t, r.stop())
			require.Equal(t, stage.UpTo(40), w.j.All())
		}))
	}
}

// The end of a disturbance is logged though no message arrives, and the next one
// again, whatever disturbs and whatever else the call has to look after.
func TestADisturbanceIsLoggedWhenItBeginsAndEnds(t *testing.T) {
	for name, cfg := range map[string]jetstream.ConsumerConfig{
		"explicit": {}, "none": {AckPolicy: jetstream.AckNonePolicy}, "a long AckWait": {AckWait: time.Hour},
	} {
		for what, d := range map[string]struct{ begin, end func(*world) }{
			"no responders": {func(w *world) { w.answer(503, ""); w.C().EndPulls(503, "") }, func(w *world) { w.TakePulls(nil) }},
			"silence":       {func(w *world) { w.Peer.Pause(true) }, func(w *world) { w.Peer.Pause(false) }},
			"a cut":         {(*world).disconnect, (*world).reconnect},
		} {
			t.Run(name+", "+what, at(cfg, func(t *testing.T, w *world) {
				w.consume(nothing)
				for range 3 {
					stage.Pass(5 * time.Second)
					before := w.said()
					d.begin(w)
					stage.Pass(time.Minute)
					require.Equal(t, before+1, w.said(), "%v", w.Logs.With(""))
					d.end(w)
					stage.Pass(10 * time.Second)
					require.Equal(t, before+2, w.said(), "%v", w.Logs.With(""))
				}
			}))
		}
	}
}

func TestConsumeEndsWhereNoRetryHelps(t *testing.T) {
	for text, tc := range map[string]struct {
		code int
		is   error
	}{
		"Bad Request - Priority Group missing": {400, jetpull.ErrBadRequest},
		"Exceeded MaxRequestBatch of 1":        {409, jetpull.ErrLimitExceeded},
		"Exceeded MaxRequestExpires of 1s":     {409, jetpull.ErrLimitExceeded},
		"Consumer is push based":               {409, jetpull.ErrNotPull},
		"Consumer Deleted":                     {409, jetpull.ErrConsumerDeleted},
		"Required Api Level":                   {412, jetpull.ErrBadRequest},
	} {
		t.Run(text, at(jetstream.ConsumerConfig{}, func(t *testing.T, w *world) {
			w.answer(tc.code, text)
			err := w.consume(nothing).result()
			require.ErrorIs(t, err, tc.is)
			status, ok := errors.AsType[*jetpull.StatusError](err)
			require.True(t, ok)
			require.Equal(t, text, status.Description)
			require.LessOrEqual(t, len(w.Pulls()), 2)
		}))
	}
}

// A deletion is known by its 409, or by a 503 and the consumer's info.
func TestConsumeOfADeletedConsumer(t *testing.T) {
	for _, silent := range []bool{false, true} {
		for _, await := range []bool{false, true} {
			t.Run(fmt.Sprintf("silent %v, AwaitConsumer %v", silent, await), at(jetstream.ConsumerConfig{DeliverPolicy: jetstream.DeliverNewPolicy}, func(t *testing.T, w *world) {
				var opts []jetpull.Option
				if await {
					opts = append(opts, jetpull.AwaitConsumer())
				}
				r := w.consume(taking(&w.j, 0), opts...)
				for round := range 2 {
					w.Publish(5)
					stage.Pass(time.Minute)
					cfg, said, deleted := w.C().Config(), w.said(), time.Now()
					if silent {
						w.C().EndPulls(408, "Request Timeout")
					}
					w.C().Delete()
					if !await {
						require.ErrorIs(t, r.result(), jetpull.ErrConsumerDeleted)
						require.LessOrEqual(t, time.Since(deleted), time.Second)
						require.Positive(t, countIs(r.errs.all(), jetpull.ErrConsumerDeleted))
						return
					}
					stage.Pass(10 * time.Minute)
					require.True(t, r.running())
					w.bounded(deleted, 6)
					require.Equal(t, said+1, w.said(), "one line a change: %v", w.Logs.With(""))
					w.AddConsumer(cfg)
					w.Publish(5)
					w.soon(time.Second, "the consumer is there again", func() bool { return w.j.Len() == 10*round+10 })
				}
				require.NoError(t, r.stop())
				require.Equal(t, stage.UpTo(20), w.j.All())
			}))
		}
	}
}

// A pull that the server drops without a word is missed by its heartbeats, and the
// next one goes out without, so that the server refuses it aloud where it is full.
func TestConsumeComesBackAfterMissedHeartbeats(t *testing.T) {
	for _, tc := range []struct {
		opts  []jetpull.Option
		takes time.Duration
	}{
		{nil, 4200 * time.Millisecond},
		{[]jetpull.Option{jetpull.Heartbeat(300 * time.Millisecond)}, 700 * time.Millisecond},
	} {
		on(t, jetstream.ConsumerConfig{}, func(t *testing.T, w *world) {
			r := w.consume(taking(&w.j, 0), tc.opts...)
			stage.Pass(12 * time.Second)
			require.Empty(t, r.errs.all(), "while heartbeats come all is well")
			said := w.said()
			w.C().DropPulls()
			lost := time.Now()
			w.Publish(3)
			w.soon(tc.takes+20*time.Millisecond, "it is missed", func() bool { return w.j.Len() == 3 })
			probe := w.PullsSince(lost)[0].Req
			require.Zero(t, probe.Heartbeat)
			require.LessOrEqual(t, probe.Expires, 5*time.Second)
			require.Len(t, r.errs.all(), 1)
			require.Equal(t, said+2, w.said(), "%v", w.Logs.With(""))
			require.EqualValues(t, 1, w.sub.Stats().Silent)
		})
	}
}

// The server takes pulls and answers none, for any time, and then answers those
// that come from then on.
func TestConsumeIsBackAfterALongSilence(t *testing.T) {
	for silence := 500 * time.Millisecond; silence < 40*time.Second; silence += 2300 * time.Millisecond {
		on(t, jetstream.ConsumerConfig{}, func(t *testing.T, w *world) {
			w.consume(taking(&w.j, 0))
			stage.Pass(time.Second)
			from := time.Now()
			w.TakePulls(stage.All)
			w.C().DropPulls()
			stage.Pass(silence)
			w.bounded(from, 3)
			w.TakePulls(nil)
			w.Publish(10)
			w.soon(6*time.Second, silence.String(), func() bool { return w.j.Len() == 10 })
		})
	}
}

// The server takes pulls up late, and all of them in order. What comes for a pull
// that was given up is handled like any other, once.
func TestConsumeWithAServerThatIsSlowToAnswer(t *testing.T) {
	for _, late := range []time.Duration{time.Second, 2 * time.Second, 5 * time.Second} {
		on(t, jetstream.ConsumerConfig{}, func(t *testing.T, w *world) {
			w.Peer.Latency(func(int) (up, down func() time.Duration) { return func() time.Duration { return late }, nil })
			w.Peer.Cut()
			stage.Pass(10 * time.Second)
			w.Publish(100)
			from := time.Now()
			r := w.consume(taking(&w.j, 0), jetpull.Prefetch(10))
			stage.Pass(5 * time.Minute)
			require.Equal(t, stage.UpTo(100), w.j.All(), "each once, after %v", late)
			w.bounded(from, 6)
			require.NoError(t, r.stop())
			stage.Pass(time.Minute)
		})
	}
}

func TestConsumeOverCutConnections(t *testing.T) {
	on(t, jetstream.ConsumerConfig{}, func(t *testing.T, w *world) {
		w.consume(taking(&w.j, time.Millisecond), jetpull.Concurrency(3))
		for i := range 50 {
			w.Publish(20)
			stage.Pass(time.Duration(i%20) * time.Millisecond)
			w.disconnect()
			stage.Pass(time.Duration(i%4) * time.Second)
			w.reconnect()
			w.Publish(1)
			back := time.Now()
			w.soon(time.Second, fmt.Sprint("round ", i), func() bool { return len(w.PullsSince(back)) > 0 })
		}
		stage.Pass(2 * time.Minute)
		require.Empty(t, w.C().Unsettled())
		require.Equal(t, 50*21, len(w.Acked("+ACK")))
		require.GreaterOrEqual(t, w.sub.Stats().Reconnects, uint64(45), "some cuts hit a connection that is being made")
	})
}

// Nothing gets through in either direction for a while, and then all of it does.
func TestConsumeOfASilentNetwork(t *testing.T) {
	for _, silence := range []time.Duration{5 * time.Second, 12 * time.Second, 45 * time.Second} {
		on(t, jetstream.ConsumerConfig{}, func(t *testing.T, w *world) {
			w.consume(taking(&w.j, time.Millisecond))
			w.Publish(100)
			stage.Pass(20 * time.Millisecond)
			w.Peer.Pause(true)
			stage.Pass(silence)
			w.Publish(100)
			w.Peer.Pause(false)
			w.soon(6*time.Second, silence.String(), func() bool { return w.j.Len() >= 200 })
			stage.Pass(time.Minute)
			require.Empty(t, w.C().Unsettled())
			require.Equal(t, 200, w.j.Len(), "each once")
		})
	}
}

// Consume has as many messages as the consumer allows, and goes on as soon as one
// is settled.
func TestConsumeAtMaxAckPending(t *testing.T) {
	on(t, jetstream.ConsumerConfig{MaxAckPending: 5, AckWait: 10 * time.Second}, func(t *testing.T, w *world) {
		w.Publish(100)
		release := make(chan struct{})
		hold := taking(&w.j, 0)
		w.consume(func(ctx ctx, m *jetpull.Msg) error { _ = hold(ctx, m); <-release; return nil }, jetpull.Concurrency(8))
		from := time.Now()
		stage.Pass(10 * time.Minute)
		require.Equal(t, 5, w.j.Len())
		w.bounded(from.Add(time.Second), 3)
		require.LessOrEqual(t, len(w.PullsSince(from)), 45)
		close(release)
		stage.Pass(time.Second)
		require.Equal(t, 100, w.j.Len(), "all within a second, each once")
	})
}

// Another client's pull fills the server's queue of waiting pulls.
func TestConsumeAtMaxWaiting(t *testing.T) {
	on(t, jetstream.ConsumerConfig{MaxWaiting: 1}, func(t *testing.T, w *world) {
		leave := w.occupy()
		from := time.Now()
		r := w.consume(taking(&w.j, 0))
		stage.Pass(10 * time.Minute)
		w.bounded(from, 3)
		require.Positive(t, countIs(r.errs.all(), jetpull.ErrMaxWaiting))
		leave()
		w.Publish(10)
		w.soon(6*time.Second, "room for a pull", func() bool { return w.j.Len() == 10 })
	})
}

// A status can count messages of its pull that were lost with the leader, say. They
// hold nothing up.
func TestMessagesThatWerePromisedAndNeverComeHoldNothingUp(t *testing.T) {
	for name, opts := range map[string][]jetpull.Option{
		"by default": nil, "no read-ahead": {jetpull.Prefetch(1)}, "few bytes": {jetpull.PrefetchBytes(100)},
	} {
		t.Run(name, at(jetstream.ConsumerConfig{}, func(t *testing.T, w *world) {
			r := w.consume(taking(&w.j, 0), opts...)
			stage.Pass(time.Minute)
			from := time.Now()
			pulls := w.Pulls()
			last := pulls[len(pulls)-1]
			w.C().DropPulls()
			w.Peer.Status(last.Reply, 408, "Request Timeout", "Nats-Pending-Messages", strconv.Itoa(last.Req.Batch-1), "Nats-Pending-Bytes", "0")
			w.Publish(1)
			w.soon(3*time.Second, "the next pull", func() bool { return w.j.Len() == 1 })
			w.Publish(30)
			stage.Pass(time.Second)
			require.Equal(t, stage.UpTo(31), w.j.All())
			w.bounded(from, 40)
			stage.Pass(time.Minute)
			require.NoError(t, r.stop())
			require.Zero(t, w.sub.Stats().Outstanding)
		}))
	}
}

// beats is how many heartbeats the server has sent so far.
func (w *world) beats() (n int) {
	for _, e := range w.Model.History() {
		if e.Kind == model.Ended && e.Code == 100 {
			n++
		}
	}
	return n
}

// The pulls that overlapped while there was traffic soon run out, and only one is
// kept alive by heartbeats.
func TestAnIdleConsumeSettlesOnOnePull(t *testing.T) {
	for name, tc := range map[string]struct {
		cfg  jetstream.ConsumerConfig
		opts []jetpull.Option
	}{
		"by default":       {},
		"several handlers": {opts: []jetpull.Option{jetpull.Concurrency(8)}},
		"a fixed window":   {opts: []jetpull.Option{jetpull.Prefetch(64)}},
		"in bytes":         {opts: []jetpull.Option{jetpull.PrefetchBytes(10_000)}},
		"in small batches": {cfg: jetstream.ConsumerConfig{MaxRequestBatch: 10}},
		"one by one":       {cfg: jetstream.ConsumerConfig{MaxRequestBatch: 1}},
		"few at a time":    {cfg: jetstream.ConsumerConfig{MaxWaiting: 3}},
		"ack none":         {cfg: jetstream.ConsumerConfig{AckPolicy: jetstream.AckNonePolicy}},
		"overflow":         {cfg: policies["overflow"], opts: []jetpull.Option{jetpull.Group("g"), jetpull.MinPending(100)}},
		"prioritized":      {cfg: policies["prioritized"], opts: []jetpull.Option{jetpull.Group("g"), jetpull.Priority(9)}},
	} {
		t.Run(name, at(tc.cfg, func(t *testing.T, w *world) {
			r := w.consume(taking(&w.j, 0), tc.opts...)
			for range 50 {
				w.Publish(7)
				stage.Pass(time.Millisecond)
			}
			w.Publish(1000)
			stage.Pass(time.Minute)
			handled, busy := w.j.Len(), len(w.Pulls())
			require.Equal(t, 1350-handled, int(w.C().State().NumPending), "all but what does not overflow")
			require.Equal(t, 1, w.C().State().NumWaiting)
			beats := w.beats()
			stage.Pass(10 * time.Minute)
			expires := w.Pulls()[0].Req.Expires
			require.LessOrEqual(t, len(w.Pulls())-busy, int(10*time.Minute/expires)+2, "one pull in the time that it lives")
			require.LessOrEqual(t, w.beats()-beats, 300, "a heartbeat in 2 s")
			require.Empty(t, r.errs.all())
		}, tc.opts[:min(1, len(tc.cfg.PriorityGroups))]...))
	}
}

// Overlapping pulls that run out are not sent again for each message.
func TestATrickleTakesFewPulls(t *testing.T) {
	for _, every := range []time.Duration{500 * time.Millisecond, 3 * time.Second, 20 * time.Second} {
		on(t, jetstream.ConsumerConfig{}, func(t *testing.T, w *world) {
			w.consume(taking(&w.j, 0))
			n := int(10 * time.Minute / every)
			for range n {
				w.Publish(1)
				stage.Pass(every)
			}
			require.Equal(t, n, w.j.Len())
			require.LessOrEqual(t, len(w.Pulls()), 35, "a message each %v", every)
			require.LessOrEqual(t, w.beats(), 330, "of little more than one pull at a time")
		})
	}
}
