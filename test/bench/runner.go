package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	roundTimeout = 3 * time.Minute
	flushTimeout = 30 * time.Second
	ackInterval  = 2 * time.Millisecond
	publishBurst = 4_000
)

// Runner runs cases against one server.
type Runner struct {
	servers       endpoints
	control       *nats.Conn
	js            jetstream.JetStream
	rounds        int
	payload       int
	maxAckPending int
	ackTimeout    time.Duration // for the server to work off the acks it has read
	progress      Progress
	streams       map[int]string // by number of messages
	serial        int
}

func newRunner(servers endpoints, s settings, progress Progress) (*Runner, error) {
	control, err := nats.Connect(servers.Direct, nats.Name("bench-control"))
	if err != nil {
		return nil, fmt.Errorf("connect to the server: %w", err)
	}
	js, err := jetstream.New(control)
	if err != nil {
		control.Close()
		return nil, err
	}
	return &Runner{
		servers: servers, control: control, js: js, progress: progress,
		rounds: s.rounds, payload: s.payload, maxAckPending: s.maxAckPending,
		ackTimeout: 20 * time.Second,
		streams:    make(map[int]string),
	}, nil
}

// Close ends the runner's own connection.
func (r *Runner) Close() { r.control.Close() }

// Case runs one case: a warm-up round that is not counted, then the rounds, in each of which every contender has its
// turn. It ends at the first turn that fails, since figures of a client that loses or repeats messages mean nothing.
func (r *Runner) Case(ctx context.Context, c Case) (CaseResult, error) {
	contenders := c.contenders()
	result := CaseResult{Name: c.Name, Title: c.Title, Targets: c.Targets}
	for _, contender := range contenders {
		result.Contenders = append(result.Contenders, ContenderResult{Name: contender.Name, Ours: contender.Ours})
	}
	for round := range r.rounds + 1 {
		for i, contender := range contenders {
			r.progress.Turn(c.Name, contender.Name, round)
			sample, err := r.turn(ctx, &c, &contender)
			if err != nil {
				err = fmt.Errorf("case %s, %s, round %d: %w", c.Name, contender.Name, round, err)
				result.Failed = err.Error()
				return result, err
			}
			if round > 0 {
				result.Contenders[i].Samples = append(result.Contenders[i].Samples, sample)
			}
		}
	}
	return result, nil
}

// turn is one measured round of one contender, with its check.
func (r *Runner) turn(ctx context.Context, c *Case, contender *Contender) (Sample, error) {
	messages := c.Messages
	if contender.Messages > 0 {
		messages = min(messages, contender.Messages)
	}
	stream, err := r.prefilled(ctx, messages)
	if err != nil {
		return Sample{}, err
	}
	consumer, err := r.freshConsumer(ctx, stream, c.Consumer)
	if err != nil {
		return Sample{}, err
	}
	// The context has no deadline, as a program's own has none that runs all day; a timer calls the round off.
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watchdog := time.AfterFunc(roundTimeout, func() { cancel(fmt.Errorf("round not done after %v", roundTimeout)) })
	defer watchdog.Stop()
	round, err := r.connect(c, cancel)
	if err != nil {
		return Sample{}, err
	}
	defer round.Conn.Close()
	round.Stream, round.Consumer, round.Messages = stream, consumer, messages
	round.receipts = newReceipts(messages)
	if err := contender.Run(ctx, round); err != nil {
		return Sample{}, errors.Join(err, context.Cause(ctx))
	}
	if err := r.verify(ctx, c, round); err != nil {
		return Sample{}, err
	}
	sample := round.meter.sample
	sample.Messages = messages
	sample.Calls = round.receipts.calls()
	return sample, r.js.DeleteConsumer(ctx, stream, consumer)
}

// connect gives a turn its own connection. An asynchronous error, such as a slow consumer, fails the round: it would
// mean lost messages.
func (r *Runner) connect(c *Case, fail context.CancelCauseFunc) (*Round, error) {
	url := r.servers.Direct
	if c.Delayed {
		url = r.servers.Delayed
	}
	conn, err := nats.Connect(url, nats.Name("bench-"+c.Name), nats.NoReconnect(),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { fail(err) }))
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", url, err)
	}
	js, err := jetstream.New(conn)
	if err != nil {
		conn.Close()
		return nil, err
	}
	return &Round{URL: url, Conn: conn, JS: js}, nil
}

// prefilled returns a stream of exactly n messages, each with its index at the start of the payload. Streams keep what
// is read, so one serves all rounds of that size.
func (r *Runner) prefilled(ctx context.Context, n int) (string, error) {
	if name, ok := r.streams[n]; ok {
		return name, nil
	}
	name := fmt.Sprintf("BENCH_%d", n)
	subject := fmt.Sprintf("bench.%d", n)
	if _, err := r.js.CreateStream(ctx, jetstream.StreamConfig{Name: name, Subjects: []string{subject}}); err != nil {
		return "", fmt.Errorf("create stream %s: %w", name, err)
	}
	for first := 0; first < n; first += publishBurst {
		if err := r.publish(ctx, subject, first, min(first+publishBurst, n)); err != nil {
			return "", fmt.Errorf("fill stream %s: %w", name, err)
		}
	}
	r.streams[n] = name
	return name, nil
}

// publish stores the messages with indexes first to end-1 and waits until the server has confirmed each.
func (r *Runner) publish(ctx context.Context, subject string, first, end int) error {
	futures := make([]jetstream.PubAckFuture, 0, end-first)
	for i := first; i < end; i++ {
		payload := make([]byte, max(r.payload, indexSize))
		binary.BigEndian.PutUint64(payload, uint64(i))
		f, err := r.js.PublishAsync(subject, payload)
		if err != nil {
			return err
		}
		futures = append(futures, f)
	}
	for _, f := range futures {
		select {
		case <-f.Ok():
		case err := <-f.Err():
			return err
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

func (r *Runner) freshConsumer(ctx context.Context, stream string, config jetstream.ConsumerConfig) (string, error) {
	r.serial++
	config.Durable = fmt.Sprintf("round_%d", r.serial)
	if config.AckPolicy != jetstream.AckNonePolicy {
		config.MaxAckPending = r.maxAckPending
	}
	if _, err := r.js.CreateConsumer(ctx, stream, config); err != nil {
		return "", fmt.Errorf("create consumer %s: %w", config.Durable, err)
	}
	return config.Durable, nil
}

// verify holds a finished round against what the client received and what the server knows: every message of the
// round received, each delivered once, none left pending and, where messages are acked, none left unacknowledged.
func (r *Runner) verify(ctx context.Context, c *Case, round *Round) error {
	if err := round.receipts.check(c.Once); err != nil {
		return err
	}
	// Only the waiting is bounded here: a request cut off by this limit would hide what it is about to say.
	limit, cancel := context.WithTimeoutCause(ctx, r.ackTimeout, fmt.Errorf("not settled after %v", r.ackTimeout))
	defer cancel()
	tick := time.NewTicker(ackInterval)
	defer tick.Stop()
	for {
		info, err := r.info(ctx, round)
		if err != nil {
			return err
		}
		if c.Once && info.Delivered.Consumer != uint64(round.Messages) {
			return fmt.Errorf("the server delivered %d times for %d messages", info.Delivered.Consumer, round.Messages)
		}
		if info.NumPending == 0 && (!c.acked() || info.NumAckPending == 0) {
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

func (r *Runner) info(ctx context.Context, round *Round) (*jetstream.ConsumerInfo, error) {
	consumer, err := r.js.Consumer(ctx, round.Stream, round.Consumer)
	if err != nil {
		return nil, fmt.Errorf("ask for the state of consumer %s: %w", round.Consumer, err)
	}
	return consumer.CachedInfo(), nil
}
