package client

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull/bench/internal/child"
)

const (
	roundTimeout  = 3 * time.Minute
	flushTimeout  = 30 * time.Second
	quietTime     = time.Second
	pollInterval  = 2 * time.Millisecond
	consumerName  = "round"
	indexSize     = 8
	defaultSettle = 20 * time.Second
)

// workload configures the rounds of all clients.
type workload struct {
	slow       bool                     // use the slow link
	config     jetstream.ConsumerConfig // the consumer that each round creates
	duplicates bool                     // allow and count duplicates
	settle     time.Duration            // how long the server may take for the last acks; 0: 20 s
}

// work reads a round with a client: set-up, round.start, the work itself, round.stop, clean-up.
type work func(ctx context.Context, r *round) error

// clock contains the methods of testing.B that a round needs.
type clock interface {
	ResetTimer()
	StopTimer()
}

// round is a set of n messages that one client reads, with a new connection, stream and consumer.
type round struct {
	n      int
	stream string
	js     jetstream.JetStream

	clock    clock
	given    atomic.Int64
	receipts *receipts
	cpu      time.Duration // processor time of this process, from start to stop
}

var rounds atomic.Int64

// play lets a client read n messages, and checks that it received and acknowledged each of them.
func play(ctx context.Context, c clock, n int, w workload, run work) (_ *round, err error) {
	// The context has no deadline, as in a program that runs all day. A timer ends the round.
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watchdog := time.AfterFunc(roundTimeout, func() { cancel(fmt.Errorf("round not done after %v", roundTimeout)) })
	defer watchdog.Stop()
	r := &round{n: n, stream: fmt.Sprintf("BENCH_%d", rounds.Add(1)), clock: c, receipts: newReceipts(n)}
	defer func() {
		err = errors.Join(err, server.admin.DeleteStream(context.WithoutCancel(ctx), r.stream))
	}()
	if err := server.fill(ctx, r.stream, n); err != nil {
		return nil, err
	}
	w.config.Durable = consumerName
	if _, err := server.admin.CreateConsumer(ctx, r.stream, w.config); err != nil {
		return nil, err
	}
	// An asynchronous error, such as a slow consumer, fails the round, because it would mean lost messages.
	r.js, err = server.connect(w.slow, nats.NoReconnect(),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { cancel(err) }))
	if err != nil {
		return nil, err
	}
	defer r.js.Conn().Close()
	if err := run(ctx, r); err != nil {
		return nil, errors.Join(err, context.Cause(ctx))
	}
	if err := r.receipts.check(!w.duplicates); err != nil {
		return nil, err
	}
	return r, r.verify(ctx, w)
}

// start collects the garbage of the set-up, and starts the clock.
func (r *round) start() {
	runtime.GC()
	r.cpu = -child.OwnCPU()
	r.clock.ResetTimer()
}

// stop stops the clock when the server has read everything that was sent, because an ack in a buffer is unfinished work.
func (r *round) stop(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, flushTimeout)
	defer cancel()
	err := r.js.Conn().FlushWithContext(ctx)
	r.clock.StopTimer()
	r.cpu += child.OwnCPU()
	if err != nil {
		return fmt.Errorf("flush at the end of the round: %w", err)
	}
	return nil
}

// wait waits until all messages are received, or the round ends.
func (r *round) wait(ctx context.Context) error {
	select {
	case <-r.receipts.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w (%d of %d messages received)", context.Cause(ctx), r.receipts.got.Load(), r.n)
	}
}

func (r *round) consumer(ctx context.Context) (jetstream.Consumer, error) {
	return r.js.Consumer(ctx, r.stream, consumerName)
}

// verify waits until the server has no pending and no unacknowledged messages, and checks the number of deliveries.
func (r *round) verify(ctx context.Context, w workload) error {
	settle := w.settle
	if settle == 0 {
		settle = defaultSettle
	}
	limit, cancel := context.WithTimeoutCause(ctx, settle, fmt.Errorf("not settled after %v", settle))
	defer cancel()
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		consumer, err := server.admin.Consumer(ctx, r.stream, consumerName)
		if err != nil {
			return err
		}
		info := consumer.CachedInfo()
		if !w.duplicates && info.Delivered.Consumer != uint64(r.n) {
			return fmt.Errorf("the server delivered %d times for %d messages", info.Delivered.Consumer, r.n)
		}
		if info.NumPending == 0 && (info.NumAckPending == 0 || info.Config.AckPolicy == jetstream.AckNonePolicy) {
			return nil
		}
		select {
		case <-tick.C:
		case <-limit.Done():
			return fmt.Errorf("%d messages pending and %d not acknowledged at the end: %w",
				info.NumPending, info.NumAckPending, context.Cause(limit))
		}
	}
}

// quiet waits until the server has no pending and no unacknowledged messages, and no handler was called for quietTime.
func (r *round) quiet(ctx context.Context, c jetstream.Consumer) error {
	tick := time.NewTicker(quietTime / 10)
	defer tick.Stop()
	calls, since := r.receipts.calls(), time.Now()
	for time.Since(since) < quietTime {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		info, err := c.Info(ctx)
		if err != nil {
			return err
		}
		if now := r.receipts.calls(); now != calls || info.NumPending > 0 || info.NumAckPending > 0 {
			calls, since = now, time.Now()
		}
	}
	return nil
}

// onGoroutines runs step on n goroutines, once for each message of the round. The first error ends all. There is a message for
// each step, so no step waits for an expiry at the end.
func (r *round) onGoroutines(ctx context.Context, n int, step func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	r.start()
	for range n {
		wg.Go(func() {
			for ctx.Err() == nil && r.given.Add(1) <= int64(r.n) {
				if err := step(ctx); err != nil {
					cancel(err)
				}
			}
		})
	}
	wg.Wait()
	if err := context.Cause(ctx); err != nil {
		return err
	}
	return r.stop(ctx)
}

// receive records a message that reached the user's code, by its payload.
func (r *round) receive(payload []byte) { r.receipts.mark(payload) }

// receipts records which messages of a round arrived and how often. The index of a message is in its payload, so that a check
// costs both clients the same few nanoseconds and no allocation. receipts is safe for concurrent use.
type receipts struct {
	n          int
	words      []atomic.Uint64
	got        atomic.Int64
	duplicates atomic.Int64
	foreign    atomic.Int64
	done       chan struct{} // closed when all messages have arrived
}

func newReceipts(n int) *receipts {
	return &receipts{n: n, words: make([]atomic.Uint64, (n+63)/64), done: make(chan struct{})}
}

func (r *receipts) mark(payload []byte) {
	index := uint64(r.n)
	if len(payload) >= indexSize {
		index = binary.BigEndian.Uint64(payload)
	}
	if index >= uint64(r.n) {
		r.foreign.Add(1)
		return
	}
	bit := uint64(1) << (index % 64)
	if r.words[index/64].Or(bit)&bit != 0 {
		r.duplicates.Add(1)
		return
	}
	if r.got.Add(1) == int64(r.n) {
		close(r.done)
	}
}

func (r *receipts) calls() int { return int(r.got.Load() + r.duplicates.Load()) }

// check returns an error unless every message of the round was received. If once is true, each must be received exactly once.
func (r *receipts) check(once bool) error {
	got, dup, foreign := r.got.Load(), r.duplicates.Load(), r.foreign.Load()
	switch {
	case foreign > 0:
		return fmt.Errorf("received %d payloads that are not of this round", foreign)
	case got != int64(r.n):
		return fmt.Errorf("received %d of %d messages", got, r.n)
	case once && dup > 0:
		return fmt.Errorf("received %d of %d messages more than once", dup, r.n)
	}
	return nil
}
