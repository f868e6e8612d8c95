package measure

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	roundTimeout  = 3 * time.Minute
	flushTimeout  = 30 * time.Second
	quietTime     = time.Second
	quietInterval = 100 * time.Millisecond
)

// Turn is one contender's part of a round: a consumer that no other turn had, on a stream that is full.
type Turn struct {
	Case     string `json:"case"`
	Delayed  bool   `json:"delayed"` // over the slow link
	Stream   string `json:"stream"`
	Consumer string `json:"consumer"`
	Messages int    `json:"messages"`
	Once     bool   `json:"once"` // a message delivered twice fails the turn
}

// Round is a turn that is being played, with a connection that no other turn had.
type Round struct {
	Turn
	Conn *nats.Conn
	JS   jetstream.JetStream

	given    atomic.Int64
	receipts *receipts
	meter    meter
}

// PlayOurs plays a turn with this library over the link that the turn asks for.
func PlayOurs(ctx context.Context, t *Turn, links Links) (Sample, error) {
	run, ok := ours[t.Case]
	if !ok {
		return Sample{}, fmt.Errorf("case %q is not known", t.Case)
	}
	return play(ctx, t, links, run)
}

// play does the work of a turn with run, checks that every message was received and returns what the work needed.
func play(ctx context.Context, t *Turn, links Links, run func(context.Context, *Round) error) (Sample, error) {
	// The context has no deadline, as a program's own has none that runs all day; a timer ends the turn.
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watchdog := time.AfterFunc(roundTimeout, func() { cancel(fmt.Errorf("round not done after %v", roundTimeout)) })
	defer watchdog.Stop()
	// An asynchronous error, such as a slow consumer, fails the turn: it would mean lost messages.
	js, err := links.of(t).again("bench-"+t.Case, nats.NoReconnect(),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { cancel(err) }))
	if err != nil {
		return Sample{}, err
	}
	defer js.Conn().Close()
	r := &Round{Turn: *t, Conn: js.Conn(), JS: js, receipts: newReceipts(t.Messages)}
	if err := run(ctx, r); err != nil {
		return Sample{}, errors.Join(err, context.Cause(ctx))
	}
	if err := r.receipts.check(t.Once); err != nil {
		return Sample{}, err
	}
	sample := r.meter.sample
	sample.Messages, sample.Calls = t.Messages, r.receipts.calls()
	return sample, nil
}

// Start begins the measurement; what a contender prepares once in its life belongs before it.
func (r *Round) Start() { r.meter.start() }

// Stop ends the measurement when the server has read all that was sent: an ack that still sits in a buffer is not work
// done, so the flush is part of the time.
func (r *Round) Stop(ctx context.Context) error {
	err := r.flush(ctx)
	r.meter.stop()
	return err
}

func (r *Round) flush(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, flushTimeout)
	defer cancel()
	if err := r.Conn.FlushWithContext(ctx); err != nil {
		return fmt.Errorf("flush at the end of the round: %w", err)
	}
	return nil
}

// Receive takes the payload of a message that reached the user's code.
func (r *Round) Receive(payload []byte) { r.receipts.mark(payload) }

// Done is closed when every message of the round was received.
func (r *Round) Done() <-chan struct{} { return r.receipts.done }

// Wait blocks until every message was received or the round ends.
func (r *Round) Wait(ctx context.Context) error {
	select {
	case <-r.Done():
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w (%d of %d messages received)", context.Cause(ctx), r.receipts.got.Load(), r.Messages)
	}
}

// Quiet waits until the server has nothing to deliver and nothing unacknowledged and no handler was called for quietTime:
// until a worker that goes on running has handled what its client had read, duplicates among it.
func (r *Round) Quiet(ctx context.Context, c jetstream.Consumer) error {
	tick := time.NewTicker(quietInterval)
	defer tick.Stop()
	calls, since := r.receipts.calls(), time.Now()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		info, err := c.Info(ctx)
		if err != nil {
			return fmt.Errorf("ask for the state of consumer %s: %w", r.Consumer, err)
		}
		now := r.receipts.calls()
		if now != calls || info.NumPending > 0 || info.NumAckPending > 0 {
			calls, since = now, time.Now()
			continue
		}
		if time.Since(since) >= quietTime {
			return nil
		}
	}
}

// Take hands out the right to pull one more message, as long as the round has messages. Clients that take before they
// pull never ask for more than there is, so none of them waits out an expiry at the end.
func (r *Round) Take() bool { return r.given.Add(1) <= int64(r.Messages) }

// pullSubject is where a hand-written pull request goes.
func (r *Round) pullSubject() string {
	return "$JS.API.CONSUMER.MSG.NEXT." + r.Stream + "." + r.Consumer
}

// consumer returns nats.go's handle for the round's consumer.
func (r *Round) consumer(ctx context.Context) (jetstream.Consumer, error) {
	c, err := r.JS.Consumer(ctx, r.Stream, r.Consumer)
	if err != nil {
		return nil, fmt.Errorf("look up consumer %s: %w", r.Consumer, err)
	}
	return c, nil
}

// work runs a step on each of n goroutines until all messages are taken; prepare makes one goroutine's step before the
// clock starts. The first error ends all.
func (r *Round) work(ctx context.Context, n int, prepare func(ctx context.Context) (step func() error, err error)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	steps := make([]func() error, n)
	for i := range steps {
		step, err := prepare(ctx)
		if err != nil {
			return err
		}
		steps[i] = step
	}
	r.Start()
	if err := runSteps(ctx, cancel, r, steps); err != nil {
		return err
	}
	return r.Stop(ctx)
}

func runSteps(ctx context.Context, cancel context.CancelCauseFunc, r *Round, steps []func() error) error {
	var wg sync.WaitGroup
	for _, step := range steps {
		wg.Go(func() {
			for ctx.Err() == nil && r.Take() {
				if err := step(); err != nil {
					cancel(err)
					return
				}
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}

// LeastPayload is the room at the start of every payload that holds the message's index in its stream. The index lives in
// the payload, not in the ack subject, so that checking a message costs every contender the same few nanoseconds and
// no allocation, whatever its client makes of metadata.
const LeastPayload = 8

// receipts records which messages of a round arrived and how often. Safe for concurrent use.
type receipts struct {
	n          int
	words      []atomic.Uint64
	got        atomic.Int64
	duplicates atomic.Int64
	foreign    atomic.Int64
	done       chan struct{}
}

func newReceipts(n int) *receipts {
	return &receipts{n: n, words: make([]atomic.Uint64, (n+63)/64), done: make(chan struct{})}
}

// mark takes one delivered payload; the delivery that completes the set closes done.
func (r *receipts) mark(payload []byte) {
	if len(payload) < LeastPayload {
		r.foreign.Add(1)
		return
	}
	index := binary.BigEndian.Uint64(payload)
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

// check returns an error unless every message of the round was received, exactly once if once is set.
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
