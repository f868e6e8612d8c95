package measure

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull/internal/progress"
)

const (
	ackInterval  = 2 * time.Millisecond
	publishBurst = 4_000
)

// Runner runs cases against one server.
type Runner struct {
	Progress   *progress.Bar // of turns; nil shows nothing
	Contenders func(*Case) []Contender

	links      Links
	plan       Plan
	ackTimeout time.Duration  // for the server to work off the acks it has read
	made       []string       // streams
	streams    map[int]string // those that are full, by number of messages
	serial     int
}

// Plan is what all cases of a run have in common.
type Plan struct {
	Rounds        int    // counted ones; one more warms up
	Payload       int    // bytes in a message, no fewer than LeastPayload
	MaxAckPending int    // of the consumers; 0: the server's default
	Streams       string // what the names of the streams begin with
	Storage       jetstream.StorageType
}

// NewRunner returns a runner whose contenders are this library and its rivals.
func NewRunner(links Links, plan Plan) *Runner {
	return &Runner{
		Contenders: (*Case).contenders,
		links:      links, plan: plan, ackTimeout: 20 * time.Second, streams: make(map[int]string),
	}
}

// Close removes the streams that the runner has made, also where ctx has ended.
func (r *Runner) Close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	var errs []error
	for _, name := range r.made {
		if err := r.links.Direct.DeleteStream(ctx, name); err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
			errs = append(errs, fmt.Errorf("remove stream %s; delete it by hand: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

// Turns returns how many there will be.
func (r *Runner) Turns(cases []Case, idle bool) int64 {
	n := 0
	for _, c := range cases {
		n += len(r.Contenders(&c)) * (r.plan.Rounds + 1)
	}
	if idle {
		n += len(idleContenders) * len(idlePlans)
	}
	return int64(n)
}

// Case runs one case: a warm-up round that is not counted, then the rounds, in each of which every contender has its
// turn. It ends at the first turn that fails, since figures of a client that loses or repeats messages mean nothing.
func (r *Runner) Case(ctx context.Context, c Case) (CaseResult, error) {
	contenders := r.Contenders(&c)
	result := CaseResult{Name: c.Name, Title: c.Title, Words: c.Words, Targets: c.Targets}
	for _, contender := range contenders {
		result.Contenders = append(result.Contenders, ContenderResult{Name: contender.Name, Ours: contender.Ours})
	}
	for round := range r.plan.Rounds + 1 {
		for i, contender := range contenders {
			sample, err := r.turn(ctx, &c, &contender)
			if err != nil {
				err = fmt.Errorf("case %s, %s, round %d: %w", c.Name, contender.Name, round, err)
				result.Failed = err.Error()
				return result, err
			}
			r.Progress.Add(1)
			if round > 0 {
				result.Contenders[i].Samples = append(result.Contenders[i].Samples, sample)
			}
		}
	}
	return result, nil
}

// turn is one measured round of one contender. The server's state is checked in the end.
func (r *Runner) turn(ctx context.Context, c *Case, contender *Contender) (Sample, error) {
	t := Turn{Case: c.Name, Delayed: c.Delayed, Messages: c.Messages, Once: c.Once}
	if contender.Messages > 0 {
		t.Messages = min(t.Messages, contender.Messages)
	}
	var err error
	if t.Stream, err = r.prefilled(ctx, t.Messages); err != nil {
		return Sample{}, err
	}
	if t.Consumer, err = r.freshConsumer(ctx, t.Stream, c.Consumer); err != nil {
		return Sample{}, err
	}
	var sample Sample
	if contender.Play != nil {
		sample, err = contender.Play(ctx, &t)
	} else {
		sample, err = play(ctx, &t, r.links, contender.Run)
	}
	if err != nil {
		return Sample{}, err
	}
	if err := r.verify(ctx, c, &t); err != nil {
		return Sample{}, err
	}
	return sample, r.links.Direct.DeleteConsumer(ctx, t.Stream, t.Consumer)
}

// prefilled returns a stream of exactly n messages, each with its index at the start of the payload. Streams keep what
// is read, so one serves all rounds of that size.
func (r *Runner) prefilled(ctx context.Context, n int) (string, error) {
	if name, ok := r.streams[n]; ok {
		return name, nil
	}
	name := fmt.Sprintf("%s_%d", r.plan.Streams, n)
	config := jetstream.StreamConfig{Name: name, Subjects: []string{name}, Storage: r.plan.Storage}
	r.made = append(r.made, name) // it may be there though the answer never came
	if _, err := r.links.Direct.CreateStream(ctx, config); err != nil {
		return "", fmt.Errorf("create stream %s: %w", name, err)
	}
	for first := 0; first < n; first += publishBurst {
		if err := r.publish(ctx, name, first, min(first+publishBurst, n)); err != nil {
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
		payload := make([]byte, max(r.plan.Payload, LeastPayload))
		binary.BigEndian.PutUint64(payload, uint64(i))
		f, err := r.links.Direct.PublishAsync(subject, payload)
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
		config.MaxAckPending = r.plan.MaxAckPending
	}
	if _, err := r.links.Direct.CreateConsumer(ctx, stream, config); err != nil {
		return "", fmt.Errorf("create consumer %s: %w", config.Durable, err)
	}
	return config.Durable, nil
}

// verify checks what the server knows of a turn: each message delivered once, none left pending and, where messages are
// acked, none left unacknowledged.
func (r *Runner) verify(ctx context.Context, c *Case, t *Turn) error {
	// Only the waiting is bounded here: a request cut off by this limit would hide what it is about to say.
	limit, cancel := context.WithTimeoutCause(ctx, r.ackTimeout, fmt.Errorf("not settled after %v", r.ackTimeout))
	defer cancel()
	tick := time.NewTicker(ackInterval)
	defer tick.Stop()
	for {
		consumer, err := r.links.Direct.Consumer(ctx, t.Stream, t.Consumer)
		if err != nil {
			return fmt.Errorf("ask for the state of consumer %s: %w", t.Consumer, err)
		}
		info := consumer.CachedInfo()
		if c.Once && info.Delivered.Consumer != uint64(t.Messages) {
			return fmt.Errorf("the server delivered %d times for %d messages", info.Delivered.Consumer, t.Messages)
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
