package worker

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/internal/natstest/script"
	"github.com/jetpull/jetpull/internal/pull"
)

func playAll(t *testing.T, scripts map[string]string) {
	for name, text := range scripts {
		t.Run(name, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { play(t, text) }) })
	}
}

func TestHandling(t *testing.T) {
	playAll(t, map[string]string{
		"one worker": `
			pool delays=1s; do 2 retry=5s; do 3 term; do 4 nak; do 5 panic; do 6 exit; do 7 err
			in 1 2 3 4 -> h1; ack1; h2; nak:5s 2; h3; term:asked 3; h4 | in 5 6 7 8 -> h5; nak:1s 5; h6; nak:1s 6; h7; nak:1s 7; h8; ack8`,
		"one worker that ends for a reason": `
			pool; do 2 1s; in 1 -> h1; ack1 | in 2 3; +1s -> h2; @1s ack2; @1s h3; @1s ack3 | end -> run`,
		"several, with exits": `
			pool workers=2 delays=9s; do 1 1s; do 2 exit; do 3 exit; in 1 2 3 4 ~> h1; h2; nak:9s 2; h3; nak:9s 3; h4; ack4 | +1s ~> @1s ack1`,
		"acknowledgements wait for others, 200 µs at most": `
			pool workers=2; do 1 1ms; do 2 5ms; do 3 9ms; in 1 2 3; +9ms ~> h1; h2; @1ms h3; @1.2ms ack1; @5ms ack2`,
		"ack none": `
			pool acknone; do 1 err; in 1 2 -> h1; h2 | do 3 1s; in 1; in 3 4 -> h1; h3 | stop; in 5; +1s -> back4; back5; @1s run`,
		"Messages: what its loop left unsettled goes back to the server after AckWait, though something comes late": `
			pool messages wait=4s; next; in 1 -> n1 | close; in 2; +20s -> back2`,
		"Messages: the next one ends the last": `
			pool messages wait=4s; next; in 1 2 3 -> n1 | +3s -> @2s wpi1; @2s wpi2; @2s wpi3
			next; +3s -> n2; @1s wpi2; @1s wpi3; @3s wpi2; @3s wpi3 | end -> back3 | next -> n0`,
	})
}

// A call with many workers starts one for each message that finds none waiting.
func TestWorkersStartWithMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ran atomic.Int32
		release, s := make(chan struct{}), newStage(t)
		ops := s.ops()
		ops.Handle = func(context.Context, []*msg) error { ran.Add(1); <-release; return nil }
		s.run(ops, Settings{Workers: 64, Prefetch: 100, DrainTimeout: time.Second}, consumer(nil))
		seq := 0
		for _, step := range []struct{ n, started int }{{0, 1}, {1, 1}, {1, 2}, {3, 5}, {95, 64}} { // the first takes the first
			var ms []pull.Message
			for range step.n {
				seq++
				ms = append(ms, &msg{id: ID{Seq: uint64(seq)}})
			}
			s.arrive(ms)
			synctest.Wait()
			s.pool.queue.mu.Lock()
			require.Equal(t, step.started, s.pool.queue.started)
			s.pool.queue.mu.Unlock()
			require.EqualValues(t, min(seq, 64), ran.Load(), "each message is handled while the others are")
		}
		close(release)
		synctest.Wait()
		require.EqualValues(t, 100, ran.Load())
		s.end()
	})
}

// Messages that arrive late, and remembered ones, do not keep a timer of a closed pool running.
func TestNothingRunsAfterClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		s.open(script.Words{"pool", "wait=4s"})
		s.deliver(script.Words{"in", "1"})
		synctest.Wait()
		s.stop()
		<-s.ended
		s.pool.Close()
		s.deliver(script.Words{"in", "2"})
		s.pool.check() // its timer had fired when the pool was closed
		looks, now := 0, s.pool.ops.Now
		s.pool.ops.Now = func() pull.At { looks++; return now() }
		time.Sleep(time.Hour)
		require.Zero(t, looks)
	})
}

func TestManualAck(t *testing.T) {
	playAll(t, map[string]string{
		"kept in progress, and the next one is handled": `
			pool manual wait=4s; in 1 2 -> h1; h2 | +3s -> @2s wpi1; @2s wpi2 | settle 1; settle 2 -> | in 1 2 n=2 -> ack1; ack2`,
		"its key waits": `
			pool manual keyed workers=2; in 1 2 key=a; in 3 key=b ~> h1; h3 | settle 1 ~> h2 | settle 2 nak; in 2 n=2 key=a ~> h2 | settle 2; settle 3 ~>`,
		"one worker and one key": `
			pool manual keyed; in 1 2 key=a -> h1 | settle 1 -> h2 | settle 2 ->`,
		"a handler that fails, or settles itself": `
			pool manual delays=1s; do 1 err; do 2 nak; in 1 2 3 -> h1; nak:1s 1; h2; h3 | settle 3; in 1 2 n=2 -> h1; h2 | settle 1; settle 2 ->`,
		"a redelivery takes its place": `
			pool manual wait=4s; in 1 -> h1 | in 1 n=2; +2s -> @2s wpi1 | settle 1; in 1 n=3 -> ack1
			in 2; in 2 n=2 -> h2 | settle 2 nak; in 2 n=3 -> h2 | settle 2 ->`,
		"one that was handed back is delivered again": `
			pool manual; in 1 -> h1 | settle 1 nak; in 1 n=2 -> h1 | settle 1; stop -> run`,
		"one that was handed back is delivered again before that is known, and the redelivery is held": `
			pool manual; in 1 -> h1 | settle 1 nak unsaid; in 1 n=2 -> h1 | said; stop -> | settle 1 -> run`,
		"the end waits for it": `
			pool manual; in 1 -> h1 | stop; in 2 -> back2 | settle 1 -> run`,
		"for the drain's time": `
			pool manual drain=2s; in 1; stop -> h1 | +2s -> @2s run: 0 ran, 0 left, 0 unstarted, 1 unsettled | settle 1 ->`,
	})
}

// A message that may not begin yet waits in place without a worker, which is not an attempt.
func TestMessagesThatMayNotBegin(t *testing.T) {
	playAll(t, map[string]string{
		"others go on, and it is handled once": `
			pool asks attempts=1 wait=4s; do 1 wait=1s,wait=2s; in 1 2; +5s -> w1; h2; e2; ack2; @1s w1; @2s wpi1; @3s h1; @3s e1; @3s ack1`,
		"its key waits with it": `
			pool asks keyed workers=2; do 1 wait=1s; in 1 2 key=a; in 3 key=b; +1s ~> w1; h3; e3; ack3; @1s h1; @1s e1; @1s ack1; @1s h2; @1s e2; @1s ack2`,
		"a redelivery takes its place": `
			pool asks wait=4s keepalive=off; do 1 wait=5s; in 1; +4s -> w1 | in 1 n=2; +1s -> @1s h1; @1s e1; @1s ack1`,
		"the end hands it back": `pool asks; do 1 wait=1s; in 1 -> w1 | stop; +1s -> back1; run`,
		"the last delivery waits in the drain": `
			pool asks maxdeliver=1; do 1 wait=1s,wait=1s; in 1 -> w1 | stop; +2s -> w1; @1s h1; @1s e1; @1s ack1; @1s run`,
		"until that is over": `
			pool asks maxdeliver=1 drain=2s; do 1 wait=1s,wait=9s; in 1 -> w1 | stop; +2s -> w1; @2s back1; @2s run: 0 ran, 0 left, 1 unstarted, 0 unsettled; @2s last[1]`,
		"a refusal ends it":                    `pool asks; do 1 refuse; in 1 -> term:too late 1`,
		"with a dead letter":                   `pool asks dead; do 1 refuse; in 1 -> dead1; term:too late 1`,
		"a panic of that question is an error": `pool asks delays=1s; do 1 oops; in 1 -> nak:1s 1`,
		"its handler's panic has an end":       `pool asks delays=1s; do 1 panic; in 1 -> h1; e1; nak:1s 1`,
		"ack none":                             `pool asks acknone; do 1 wait=1s; in 1; +1s -> w1; @1s h1; @1s e1 | do 2 refuse; in 2 ->`,
	})
}

// Messages are handed back if no worker is left to handle them.
func TestNothingIsLeftBehind(t *testing.T) {
	playAll(t, map[string]string{
		"by StopAfter and DrainBuffered":  `pool stopafter=1 buffered; in 1 2 -> h1; ack1; back2; run`,
		"by StopAfter at last deliveries": `pool stopafter=1 maxdeliver=1; in 1 2 -> h1; ack1; back2; run; last[2]`,
		"by a key that is unsettled":      `pool manual keyed buffered; in 1 2 key=a -> h1 | stop -> | settle 1 -> h2 | settle 2 -> run`,
		"at the last delivery":            `pool manual keyed maxdeliver=1 workers=2; in 1 2 key=a ~> h1 | stop ~> | settle 1 ~> h2 | settle 2 ~> run`,
		"by a handler that goes on for too long": `
			pool manual drain=1s; do 1 3s; in 1 -> h1 | stop; +2s -> @1.95s run: 1 ran, 1 left, 0 unstarted, 0 unsettled | close; +9s ->`,
		"credit, with a small window": `pool manual prefetch=1; in 1 -> h1 | settle 1 -> | in 2 -> h2 | settle 2 ->`,
		"credit, with one of two":     `pool manual prefetch=2; in 1 -> h1 | settle 1 -> | in 2 -> h2 | settle 2 ->`,
	})
}

func TestStopAfter(t *testing.T) {
	playAll(t, map[string]string{
		"messages": `
			pool stopafter=2; in 1 2 3 -> h1; ack1; h2; ack2; back3; run`,
		"one by one": `
			pool stopafter=2; in 1 -> h1; ack1 | in 2 -> h2; ack2; run`,
		"one that is delivered again counts again": `
			pool stopafter=2 delays=0s; do 1 err; in 1 -> h1; nak:0s 1 | in 1 n=2 -> h1; ack1; run`,
		"one that is retried in place does not": `
			pool keyed stopafter=1 delays=1s; do 1 err; in 1 key=a; +1s -> h1; @1s h1; @1s ack1; @1s run`,
		"what another worker has counts": `
			pool workers=3 stopafter=2; do 1 1s; do 2 2s; in 1 2 3; +2s ~> h1; h2; @1s ack1; @2s ack2; @2s back3; @2s run`,
		"what is left unsettled counts when it is settled": `
			pool manual stopafter=2; in 1 2 3 -> h1; h2 | settle 2 -> | settle 1 -> back3; run`,
		"what was settled before does not": `
			pool stopafter=2; in 1 -> h1; ack1 | in 1 n=2 -> ack1 | in 2 -> h2; ack2; run`,
		"Messages": `
			pool messages stopafter=2; in 1 2 3; next -> n1 | next -> n2 | next -> back3; n0`,
	})
}

func TestRetries(t *testing.T) {
	playAll(t, map[string]string{
		"by RetryDelays, with MaxAttempts": `
			pool delays=0s,2s attempts=3 backoff=7s; do 1 err,err,panic; in 1; in 1 n=2 -> h1; nak:0s 1; h1; nak:2s 1
			in 1 n=3 -> h1; term:failed 3 times: the handler panicked: boom 1 | in 1 n=4 -> term: 1`,
		"by BackOff, and at the last delivery": `
			pool backoff=3s,4s maxdeliver=3; do 1 err,err; in 1 n=2; in 1 n=3 -> h1; nak:4s 1; h1; nak:4s 1; last[1]`,
		"keys: in place, first of its key, kept in progress": `
			pool keyed workers=2 wait=4s keepalive=off delays=1s,4500ms; do 1 err,err; in 1 2 key=a; in 3 key=b ~> h1; h3; ack3
			+1s ~> @1s h1 | +5s ~> @1s wpi1; @3s wpi1; @4.5s h1; @4.5s ack1; @4.5s h2; @4.5s ack2`,
		"keys: MaxDeliver bounds the tries": `
			pool keyed delays=5s maxdeliver=3; do 1 err,err,err; in 1 key=a; +1m -> h1; @5s h1; @10s h1; @10s term:failed 3 times: err 1`,
		"keys: deliveries count too": `
			pool keyed delays=1s,3s,7s attempts=4; do 1 err,err,err; in 1 key=a n=2; +1m -> h1; @3s h1; @10s h1; @10s term:failed 4 times: err 1`,
		"keys: what a handler hands back goes behind": `
			pool keyed delays=1s; do 1 nak; in 1 2 key=a -> h1; h2; ack2 | in 1 key=a n=2 -> h1; ack1`,
		"keys: what it hands back goes behind it while it runs": `
			pool keyed workers=2 wait=4s keepalive=off; do 1 nak9s; in 1 key=a ~> h1 | in 1 n=2 key=a; in 1 n=3 key=a; stop ~> back1
			+9s ~> @9s run`,
		"keys: at the end, back to the server after the delay, or at once where later messages of its key would come before it": `
			pool keyed delays=5s reading=1s; do 1 err; in 1 key=a; stop; +1s -> h1; @1s nak:5s 1; @1s run`,
		"keys: that is with the consumer alone": `
			pool keyed alone delays=5s reading=1s; do 1 err; in 1 key=a; stop; +1s -> h1; @1s nak:0s 1; @1s run`,
		"keys: a stop hands back": `
			pool keyed delays=5s; do 1 err; in 1 2 key=a; stop -> h1; back1; back2; run`,
		"keys: a retry that is due waits for a worker": `
			pool keyed wait=4s delays=1s; do 1 err; do 2 3s; in 1 key=a -> h1 | in 2 key=b; +3s -> h2; @2s wpi1; @2s wpi2; @3s ack2; @3s h1; @3s ack1`,
		"keys: or starts one": `
			pool keyed workers=2 delays=1s; do 1 err; do 2 9s; in 1 key=a ~> h1 | in 2 key=b; +9s ~> h2; @1s h1; @1s ack1; @9s ack2`,
		"keys: the window is full of them": `
			pool keyed prefetch=2 delays=5s; do 1 err,err; do 2 err; in 1 key=a -> h1 | in 2 key=b -> h2`,
		"a key function that panics gives the empty key": `
			pool keyed workers=2; do 1 9s; in 1 ~> h1; nokey1 | in 2 key= ; in 3 key=a ~> h3; ack3 | +9s ~> @9s ack1; @9s h2; @9s ack2`,
		"dead letters": `
			pool attempts=2 dead delays=5s; do 1 err,err,err; in 1 -> h1; nak:5s 1 | refused; in 1 n=2 -> h1; dead1; nak:5s 1
			accepted; in 1 n=3 -> h1; dead1; term:failed 3 times: err 1`,
		"a crashed server counts deliveries anew, attempts do not": `
			pool attempts=2 dead delays=5s wait=9s timeout=2s keepalive=off; do 1 5s; in 1 n=2 -> h1
			in 1 n=1; +5s -> @5s wpi1; @5s dead1; @5s term:failed 2 times: jetpull: the handler ran for longer than HandlerTimeout: context deadline exceeded: it is 2s 1`,
		"at the last delivery the worker insists": `
			pool attempts=2 dead maxdeliver=2 wait=4s keepalive=off; do 1 err; refused; in 1 n=2 -> h1; dead1
			+3s -> @1s dead1; @2s wpi1; @3s dead1 | accepted; +4s -> @1s wpi1; @3s wpi1; @4s dead1; @4s term:failed 2 times: err 1`,
		"from its first try on": `
			pool attempts=2 dead storing=3s maxdeliver=2 wait=4s keepalive=off; do 1 err; in 1 n=2 -> h1; dead1
			+3s -> @2s wpi1; @3s term:failed 2 times: err 1`,
		"even if its handler has taken nearly all of AckWait: before the consumer is read": `
			pool attempts=1 dead storing=3s maxdeliver=1 wait=4s keepalive=off timeout=1s reading=500ms; do 1 3900ms; in 1 -> h1
			+3900ms -> @3.9s wpi1 | +2s -> @500ms dead1; @2s wpi1`,
		"or before, while its dead letter is stored": `
			pool attempts=2 dead storing=3s wait=4s keepalive=off; do 1 err; in 1 n=2 -> h1; dead1 | +3s -> @2s wpi1; @3s term:failed 2 times: err 1`,
		"until the drain ends": `
			pool attempts=2 dead maxdeliver=2 drain=2s delays=9s; do 1 err; refused; in 1 n=2 -> h1; dead1 | stop -> dead1
			+3s -> @1s dead1; @2s dead1; @2s nak:9s 1; @2s run: 1 ran, 0 left, 0 unstarted, 0 unsettled; @2s last[1]`,
		"HandlerTimeout fails when the handler returns": `
			pool timeout=2s delays=1s; do 1 hang; do 2 5s; in 1 2; +9s -> h1; @2s nak:1s 1; @2s h2; @7s nak:1s 2`,
		"and with keys": `
			pool timeout=2s delays=1s keyed; do 1 5s; in 1 2 key=a; +9s -> h1; @6s h1; @6s ack1; @6s h2; @6s ack2
			do 3 hang; in 3 key=a -> h3 | stop; +2s -> @2s nak:1s 3; @2s run`,
	})
}

func TestRedelivery(t *testing.T) {
	playAll(t, map[string]string{
		"replaces what is held": `
			pool prefetch=3 attempts=2; do 1 5s; do 2 err; in 1 2; in 1 n=2; in 2 n=2; +5s -> h1; @5s ack1; @5s h2; @5s term:failed 2 times: err 2`,
		"of what was settled is settled again, if it is the same message": `
			pool; do 2 term; in 1 2 -> h1; ack1; h2; term:asked 2 | in 1 2 -> ack1; term: 2 | in 1 stored=2 -> h1; ack1`,
		"is forgotten after a reset, which is not one that was overtaken": `
			pool; in 1 2 number=9 -> h1; ack1; h2; ack2 | in 1 n=2 number=3 -> ack1
			in 3 number=20; in 4 number=8; in 1 n=2 number=12 -> h3; ack3; h4; ack4; ack1
			in 2 number=3 -> h2; ack2 | in 1 number=4 -> h1; ack1`,
		"of what was held at a reset is settled again": `
			pool; do 2 5s; in 1 2 number=9 -> h1; ack1; h2 | in 1 number=2; +5s -> @5s ack2; @5s h1; @5s ack1 | in 2 number=3 -> ack2`,
		"is remembered for two AckWaits, and so many": `
			pool remembers=2 wait=4s; in 1 2 3; in 1 n=2; in 3 n=2 -> h1; ack1; h2; ack2; h3; ack3; h1; ack1; ack3
			+5s; in 3 n=3 -> ack3 | +5s; in 3 n=4 -> ack3 | +10s; in 3 n=5 -> h3; ack3`,
	})
}

func TestKeepAlive(t *testing.T) {
	playAll(t, map[string]string{
		"from half of AckWait on": `
			pool wait=4s; do 1 5s; in 1 2; +9s -> h1; @2s wpi1; @2s wpi2; @4s wpi1; @4s wpi2; @5s ack1; @5s h2; @5s ack2`,
		"off": `
			pool wait=1s keepalive=off; do 2 30s; in 1 2 3; +11s -> h1; ack1; h2 | changed; +19s -> back3; @19s ack2; @19s run`,
	})
}

// The end of the call cancels a handler. A cancelled call is not an attempt, whatever the handler returns.
func TestCancellationIsNoAttempt(t *testing.T) {
	const ran = "@2s run: 1 ran, 0 left, 0 unstarted, 0 unsettled"
	for name, pool := range map[string]string{
		"MaxAttempts": "attempts=1", "a dead letter": "attempts=1 dead", "keys": "keyed attempts=1",
		"both": "keyed attempts=1 dead",
	} {
		for _, do := range []string{"hang", "hang+retry=9s", "hang+panic", "hang+exit"} {
			playAll(t, map[string]string{name + ", " + do: `
				pool drain=2s ` + pool + `; do 1 ` + do + `; in 1 key=a; stop; +9s -> h1; @2s back1; ` + ran})
		}
		playAll(t, map[string]string{
			name + ", its last delivery": `pool drain=2s maxdeliver=1 ` + pool + `; do 1 hang; in 1 key=a; stop; +9s -> h1; @2s back1; ` + ran + `; @2s last[1]`,
			name + ", a verdict stands":  `pool drain=2s ` + pool + `; do 1 hang+term; in 1 key=a; stop; +9s -> h1; @2s term:asked 1; ` + ran,
		})
	}
	playAll(t, map[string]string{
		"the end after a failure is none": `pool drain=2s delays=9s reading=3s; do 1 err; in 1; stop; +9s -> h1; @2s nak:9s 1; ` + ran,
		"its own time limit is one":       `pool drain=2s attempts=1 timeout=1s; do 1 hang; in 1; stop; +9s -> h1; @1s term:failed 1 times: jetpull: the handler ran for longer than HandlerTimeout: context deadline exceeded: it is 1s 1; @1s run`,
	})
}

func TestStop(t *testing.T) {
	playAll(t, map[string]string{
		"what was not started goes back in order, but for last deliveries": `
			pool maxdeliver=2; do 1 1s; in 1 5 4; in 6 n=2 -> h1 | stop -> back4; back5
			in 7; in 1 n=2; +1s -> back7; @1s ack1; @1s h6; @1s ack6; @1s run`,
		"the drain ends": `
			pool drain=2s delays=9s; do 1 hang; in 1; stop; +2s -> h1; @2s back1; @2s run: 1 ran, 0 left, 0 unstarted, 0 unsettled`,
		"a change of the configuration waits for handlers": `
			pool drain=2s; do 1 9s; in 1 2 -> h1 | changed; in 1 n=2; +9s -> back2; @9s ack1; @9s run`,
		"unless the call ends": `
			pool drain=2s delays=9s; do 1 hang; in 1 -> h1 | changed; +9s -> | stop; +2s -> @2s back1; @2s run: 1 ran, 0 left, 0 unstarted, 0 unsettled`,
		"the close sends acknowledgements that wait": `
			pool workers=2; do 1 1s; in 1 ~> h1 | stop; +1s ~> @1s run | close ~> ack1`,
		"with handlers that go on, and last deliveries": `
			pool drain=2s maxdeliver=2; do 1 stuck; in 1; in 2 n=2; stop; +9s -> h1; @2s back2; @2.95s run: 1 ran, 1 left, 1 unstarted, 0 unsettled; @2s last[2]`,
	})
}

// Batches that wait, and batches in which a message fails, may not begin, or ends.
func TestBatches(t *testing.T) {
	playAll(t, map[string]string{
		"the next one fills meanwhile, and its delay counts from its first message": `
			pool batch=2 delay=1s; do 1 5s; in 1 2; +1s -> b1,2 | in 3; +5s -> @4s ack1; @4s ack2; @4s b3; @4s ack3`,
		"one message of a key, in order": `
			pool keyed batch=4 delay=1s; in 1 key=a; in 2 key=b; in 3 key=a; +9s -> @1s b1,2; @1s ack1; @1s ack2; @1s b3; @1s ack3`,
		"the end hands back a message that may not begin": `
			pool asks batch=2 delay=1m; do 1 wait=1s; in 1 -> | stop -> w1; back1; run`,
		"an end for a reason of its own does so with DrainBuffered too": `
			pool asks buffered batch=2 delay=1m; do 1 wait=1s; in 1 -> | end -> w1; back1; run`,
		"that the drain cancels is no attempt": `
			pool attempts=1 batch=2 delay=1s drain=1s; do 1 hang; do 2 hang; in 1 2 3 -> b1,2 | stop; +1s -> back3; @1s back1; @1s back2; @1s run: 2 ran, 0 left, 0 unstarted, 0 unsettled`,
		"a message that may not begin is in a later batch": `
			pool asks batch=2; do 2 wait=1s; in 1 2; +1s -> w2; b1; e1; ack1; @1s b2; @1s e2; @1s ack2`,
		"in the drain it holds up no other": `
			pool asks buffered batch=2 delay=1m drain=9s; do 1 2s; do 4 wait=3s; in 1 2 -> b1,2
			in 3 4; stop; +2s -> @2s e1; @2s e2; @2s ack1; @2s ack2; @2s w4; @2s b3; @2s e3; @2s ack3
			+9s -> @3s b4; @3s e4; @3s ack4; @3s run`,
		"nor at its last delivery": `
			pool asks maxdeliver=1 batch=2 delay=1m drain=9s; do 1 2s; do 4 wait=3s; in 1 2 -> b1,2
			in 3 4; stop; +2s -> @2s e1; @2s e2; @2s ack1; @2s ack2; @2s w4; @2s b3; @2s e3; @2s ack3
			+9s -> @3s b4; @3s e4; @3s ack4; @3s run`,
		"the end does not wait for a full batch": `
			pool manual batch=2 delay=1m drain=9s; in 1 2 -> b1,2 | in 3; stop -> b3 | settle 1; settle 2; settle 3 -> run`,
		"a dead letter that is not stored holds up no acknowledgement": `
			pool attempts=1 dead maxdeliver=1 batch=2; do 1 err; refused; in 1 2 -> b1,2; ack2; dead1
			accepted; +1s -> @1s dead1; @1s term:failed 1 times: err 1`,
		"nor does one that may not begin hold up the handler": `
			pool asks dead maxdeliver=1 batch=2; do 1 refuse; refused; in 1 2 -> b2; e2; ack2; dead1
			accepted; +1s -> @1s dead1; @1s term:too late 1`,
		"acknowledgements are repeated until the drain ends": `
			pool batch=2 drain=150ms; deaf; in 1 2 -> b1,2; ack1; ack2
			stop; +1s -> @100ms ack1; @100ms ack2; @150ms run: 2 ran, 0 left, 0 unstarted, 0 unsettled`,
		"or the consumer is gone": `
			pool batch=2; deaf; in 1 2 -> b1,2; ack1; ack2 | end; +1s -> @100ms run`,
		"or the consumer is another one, and the Subscription is closed": `
			pool batch=2; deaf; in 1 2 -> b1,2; ack1; ack2 | changed; closed; +1s -> @100ms run`,
	})
}

// All messages of a batch pass a check that can take long before any passes the next, so a handler begins when its limit says so.
func TestABatchIsAdmittedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, begin := newStage(t), time.Now()
		var admitted []time.Duration
		ops := s.ops()
		ops.Checks = []Check[*msg]{
			func(ctx context.Context, m *msg) (context.Context, func(), error) {
				if time.Sleep(time.Second); m.id.Seq == 2 {
					return nil, nil, &Refusal{"too late"}
				}
				return ctx, nil, nil
			},
			func(ctx context.Context, _ *msg) (context.Context, func(), error) {
				admitted = append(admitted, time.Since(begin))
				return ctx, nil, nil
			},
		}
		ops.DeadLetter = func(context.Context, *msg, string, int) error { time.Sleep(time.Second); return nil }
		ops.Handle = func(context.Context, []*msg) error {
			require.Equal(t, 3*time.Second, time.Since(begin))
			return nil
		}
		ops.Failure, ops.Confirm = func(err error, _ *msg) error { return err }, s.confirm
		s.run(ops, Settings{Workers: 1, Batch: 3, DrainTimeout: time.Second}, consumer(nil))
		s.deliver(script.Words{"in", "1", "2", "3"})
		time.Sleep(9 * time.Second)
		synctest.Wait()
		require.Equal(t, []time.Duration{3 * time.Second, 3 * time.Second}, admitted)
		s.end()
	})
}

// A message of a call without MaxCrashes, ExpiresAt and Limited is handled without an allocation.
func TestHandlingAllocatesNothing(t *testing.T) {
	p := &Pool[int]{handlers: t.Context(), ackNone: true, ops: Ops[int]{
		Handle:  func(context.Context, []int) error { return nil },
		Settled: func(int) Settlement { return Undecided },
	}}
	s := &slot[int]{es: []*entry[int]{{}}}
	require.Zero(t, testing.AllocsPerRun(100, func() { p.handle(s); s.ms = s.ms[:0] }))
}
