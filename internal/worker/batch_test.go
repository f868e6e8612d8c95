package worker

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// Batches where something fails, may not begin, or ends.
func TestBatches(t *testing.T) {
	playAll(t, map[string]string{
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
	})
}

// Questions that can take long come before the messages are admitted, so that a handler begins when its limit says so.
func TestABatchIsAdmittedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, begin := newStage(t), time.Now()
		var admitted []time.Duration
		ops := s.ops()
		ops.Begin = func(_ context.Context, m *msg) (func(), error) {
			if time.Sleep(time.Second); m.id.Seq == 2 {
				return nil, &Refusal{"too late"}
			}
			return nil, nil
		}
		ops.Admit = func(ctx context.Context, _ *msg) (context.Context, func(), error) {
			admitted = append(admitted, time.Since(begin))
			return ctx, func() {}, nil
		}
		ops.DeadLetter = func(context.Context, *msg, string, int) error { time.Sleep(time.Second); return nil }
		ops.HandleBatch = func(context.Context, []*msg) error {
			require.Equal(t, 3*time.Second, time.Since(begin))
			return nil
		}
		ops.Failure, ops.Confirm = func(err error, _ *msg) error { return err }, s.confirm
		s.run(ops, Settings{Workers: 1, Batch: 3, DrainTimeout: time.Second}, consumer(nil))
		s.arrive([]*msg{{id: ID{Seq: 1}}, {id: ID{Seq: 2}}, {id: ID{Seq: 3}}})
		time.Sleep(9 * time.Second)
		synctest.Wait()
		require.Equal(t, []time.Duration{3 * time.Second, 3 * time.Second}, admitted)
		s.end()
	})
}
