// Package deadletters stores dead letters for messages that reached a consumer's MaxDeliver, and reads dead letters.
//
// The server stops delivering such a message, and leaves it in its stream. It reports only the sequence, in an advisory. [Keep] makes a stream store
// the advisories, and [Capture] stores a dead letter for each, as [jetpull.DeadLetter] does for messages that Consume gives up on, with the reason
// "delivered MaxDeliver times". Within the duplicate window of the stream of dead letters (Duplicates, 2 minutes by default), a message makes one
// dead letter, even if Consume has stored one too, or Capture was killed. Neither the message nor the advisory is deleted.
//
// # Forged advisories
//
// Every client of the account that may publish to $JS.EVENT can forge an advisory. Allow only the server to publish to $JS.EVENT.ADVISORY.>, and look
// at the dead letters before a requeue. Capture stores a dead letter only if the consumer exists, has a MaxDeliver, matches the subject of the
// message and has delivered up to its sequence; and if the message is in the stream, was stored before the advisory, and is not a dead letter itself.
// Streams of the broker, of the relay and of package partition are left out. Any other advisory is dropped, and logged. Before you remove MaxDeliver
// from a consumer, or delete the consumer, wait until Capture has handled its advisories.
//
// The server does not say whether a message was delivered MaxDeliver times or was acknowledged, because the acknowledgement floor passes both. If the
// stream keeps acknowledged messages, a forged advisory for one of them makes a dead letter.
//
// If a stream, a consumer or a message cannot be read, the advisory is tried again later, after 1 s to 1 min. "Not found" counts after the server has
// said so for 10 s, because a server that has just started does not know its streams and consumers yet.
package deadletters

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/internal/deadletter"
	"github.com/jetpull/jetpull/internal/jsstream"
	"github.com/jetpull/jetpull/internal/stored"
	"github.com/jetpull/jetpull/internal/systems"
	"github.com/jetpull/jetpull/internal/watch"
	"github.com/jetpull/jetpull/internal/wire"
)

const (
	// durable is the consumer of the advisories. All processes share it.
	durable = "max-deliveries"
	// atOnce is the number of advisories handled at a time.
	atOnce = 64
	// absent is how long a stream or a consumer must not be found before its advisory is dropped. Requests are repeated with doubling pauses.
	absent, firstPause = 10 * time.Second, 100 * time.Millisecond
	// otherClock is how much later than its advisory a message may be stored, as servers' clocks differ. After that, it is another message.
	otherClock = time.Minute
)

// Subjects returns the subjects of the advisories of streams, or of all streams if none is named.
func Subjects(streams ...string) (subjects []string) {
	for _, s := range streams {
		subjects = append(subjects, deadletter.Advisories+s+".>")
	}
	if len(streams) == 0 {
		return []string{deadletter.Advisories + ">"}
	}
	return subjects
}

// Keep makes an existing stream keep the advisories of other streams, or of all streams of the account if none is named. It returns the subjects that
// it has added, and needs permission for STREAM.INFO and STREAM.UPDATE of the stream. The server refuses a subject that another stream has.
func Keep(ctx context.Context, js jetstream.JetStream, stream string, streams ...string) (added []string, err error) {
	if err := check(ctx, js); err != nil {
		return nil, err
	}
	s, err := js.Stream(ctx, stream)
	if err != nil {
		return nil, fmt.Errorf("deadletters: stream %q: %w", stream, err)
	}
	cfg := s.CachedInfo().Config
	for _, subject := range Subjects(streams...) {
		if !slices.ContainsFunc(cfg.Subjects, func(has string) bool { return wire.Matches(has, subject) }) {
			added = append(added, subject)
		}
	}
	if len(added) == 0 {
		return nil, nil
	}
	// The server refuses subjects that overlap.
	cfg.Subjects = slices.DeleteFunc(cfg.Subjects, func(has string) bool {
		return slices.ContainsFunc(added, func(subject string) bool { return wire.Matches(subject, has) })
	})
	cfg.Subjects = append(cfg.Subjects, added...)
	if _, err := js.UpdateStream(ctx, cfg); err != nil {
		return nil, fmt.Errorf("deadletters: add %q to stream %q: %w", added, stream, err)
	}
	return added, nil
}

func check(ctx context.Context, js jetstream.JetStream) error {
	if ctx == nil || js == nil {
		return fmt.Errorf("deadletters: %w: the context or the JetStream is nil", jetpull.ErrInvalidOption)
	}
	return nil
}

// Config configures [Capture].
type Config struct {
	// Stream keeps the advisories. It can be the stream of the dead letters. Capture creates the consumer "max-deliveries" on it.
	Stream string
	// Subject is the subject of the dead letters. A stream must store it.
	Subject string
	// Idle is the time without an advisory after which Capture ends. 0 means that it runs until its context ends.
	Idle time.Duration
	// Logger gets a line for each dead letter and for each advisory that is dropped. Nil means slog's default logger.
	Logger *slog.Logger
}

// Capture stores a dead letter for each advisory that a stream keeps, until ctx ends or Config.Idle has passed. Then it returns nil. Several
// processes share the advisories. Capture reads streams, consumers and messages. It needs permission for STREAM.NAMES, STREAM.INFO, CONSUMER.INFO,
// DIRECT.GET and STREAM.MSG.GET of the streams, for CONSUMER.CREATE on the advisories' stream, and what [jetpull.Subscription.Consume] needs.
func Capture(ctx context.Context, js jetstream.JetStream, cfg Config) error {
	if err := check(ctx, js); err != nil {
		return err
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	sub, err := subscribe(ctx, js, &cfg)
	if err != nil && ctx.Err() != nil {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = sub.Close(context.WithoutCancel(ctx)) }()
	c := &capture{js, cfg, jsstream.NewReader(js, 1, context.Cause)}
	handle := c.handle
	if cfg.Idle > 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithCancel(ctx)
		idle := time.AfterFunc(cfg.Idle, stop)
		defer idle.Stop()
		handle = func(ctx context.Context, m *jetpull.Msg) error {
			defer idle.Reset(cfg.Idle)
			return c.handle(ctx, m)
		}
	}
	return sub.Consume(ctx, handle, jetpull.Concurrency(atOnce), jetpull.Logger(cfg.Logger))
}

func subscribe(ctx context.Context, js jetstream.JetStream, cfg *Config) (*jetpull.Subscription, error) {
	if _, err := js.StreamNameBySubject(ctx, cfg.Subject); err != nil {
		return nil, fmt.Errorf("deadletters: the stream that stores subject %q: %w", cfg.Subject, err)
	}
	consumer, err := js.CreateOrUpdateConsumer(ctx, cfg.Stream, jetstream.ConsumerConfig{
		Durable: durable, FilterSubject: deadletter.Advisories + ">", AckPolicy: jetstream.AckExplicitPolicy,
		MaxAckPending: -1, // so that waiting advisories do not block others
	})
	if err != nil {
		return nil, fmt.Errorf("deadletters: the consumer of the advisories that stream %q keeps (see Keep): %w", cfg.Stream, err)
	}
	return jetpull.SubscribeConsumer(ctx, js, consumer)
}

type capture struct {
	js     jetstream.JetStream
	cfg    Config
	reader *jsstream.Reader
}

// mismatch is the reason why an advisory never makes a dead letter.
type mismatch string

func (m mismatch) Error() string { return string(m) }

func drop(format string, args ...any) error { return mismatch(fmt.Sprintf(format, args...)) }

func (c *capture) handle(ctx context.Context, m *jetpull.Msg) error {
	log := c.cfg.Logger.With("advisory", m.Subject(), "advisory_sequence", m.Sequence())
	dead, err := c.check(ctx, m)
	if why, ok := errors.AsType[mismatch](err); ok {
		log.Warn("deadletters: advisory was dropped", "reason", string(why))
		return nil
	}
	if err != nil {
		return err
	}
	if err := dead.Store(ctx, c.js, c.cfg.Subject); err != nil {
		return fmt.Errorf("dead letter of message %d of stream %s to %s: %w", dead.Sequence, dead.Stream, c.cfg.Subject, err)
	}
	log.Warn("deadletters: message became a dead letter", "sequence", dead.Sequence, "subject", dead.Subject, "dead_letter", c.cfg.Subject,
		"reason", dead.Reason)
	return nil
}

// check returns the dead letter of an advisory. The error is a mismatch if there is none. After any other error, this is unknown.
func (c *capture) check(ctx context.Context, m *jetpull.Msg) (*deadletter.Message, error) {
	var a struct {
		Stream, Consumer string
		Sequence         uint64 `json:"stream_seq"`
		Deliveries       int
	}
	if err := json.Unmarshal(m.Data(), &a); err != nil {
		return nil, drop("it is no advisory: %v", err)
	}
	if m.Subject() != deadletter.Advisories+a.Stream+"."+a.Consumer || !named(a.Stream) || !named(a.Consumer) || a.Sequence < 1 || a.Deliveries < 1 {
		return nil, drop("it does not state what its subject does, or no deliveries of a message")
	}
	stream, consumer, err := c.find(ctx, a.Stream, a.Consumer)
	if err != nil {
		return nil, err
	}
	switch system := systems.OfStream(a.Stream, stream.CachedInfo().Config.Subjects); {
	case system != "":
		return nil, drop("the stream belongs to the %s", system)
	case consumer.Config.MaxDeliver < 1:
		return nil, drop("the consumer has no MaxDeliver")
	case a.Sequence > consumer.Delivered.Stream:
		return nil, drop("the consumer has delivered up to sequence %d, and not %d", consumer.Delivered.Stream, a.Sequence)
	}
	kept, err := m.Metadata()
	if err != nil {
		return nil, err
	}
	raw, err := c.reader.At(ctx, stream, a.Sequence)
	switch {
	case errors.Is(err, stored.ErrNotFound):
		return nil, drop("message %d was deleted from the stream", a.Sequence)
	case err != nil:
		return nil, err
	case raw.Header.Get(deadletter.HeaderSubject) != "":
		return nil, drop("message %d is a dead letter itself", a.Sequence)
	case !takes(&consumer.Config, raw.Subject):
		return nil, drop("the consumer does not take message %d, of subject %s", a.Sequence, raw.Subject)
	case raw.Time.After(kept.Timestamp.Add(otherClock)):
		return nil, drop("message %d was stored later than the advisory", a.Sequence)
	}
	return &deadletter.Message{
		Stream: a.Stream, Consumer: a.Consumer, Sequence: a.Sequence, Stored: raw.Time.UnixNano(), Subject: raw.Subject, Header: raw.Header, Data: raw.Data,
		Reason: "delivered MaxDeliver times", Attempts: a.Deliveries,
	}, nil
}

// named reports whether a stream or a consumer can have the name. Requests for other names could break the connection.
func named(name string) bool {
	return name != "" && len(name) <= wire.MaxName && !strings.ContainsAny(name, ">*. /\\\t\r\n")
}

// takes reports whether a consumer delivers messages on a subject.
func takes(cfg *jetstream.ConsumerConfig, subject string) bool {
	filters := cfg.FilterSubjects
	if cfg.FilterSubject != "" {
		filters = []string{cfg.FilterSubject}
	}
	return len(filters) == 0 || slices.ContainsFunc(filters, func(f string) bool { return wire.Matches(f, subject) })
}

// find reads a stream and a consumer. The error is a mismatch if one of them is gone.
func (c *capture) find(ctx context.Context, stream, consumer string) (jetstream.Stream, *jetstream.ConsumerInfo, error) {
	for begun, pause := time.Now(), firstPause; ; pause *= 2 {
		s, info, err := c.ask(ctx, stream, consumer)
		switch {
		case !errors.Is(err, jetstream.ErrStreamNotFound) && !errors.Is(err, jetstream.ErrConsumerNotFound):
			return s, info, err
		case time.Since(begun) >= absent:
			return nil, nil, drop("%v", err)
		}
		if err := watch.Sleep(ctx, pause); err != nil {
			return nil, nil, err
		}
	}
}

func (c *capture) ask(ctx context.Context, stream, consumer string) (jetstream.Stream, *jetstream.ConsumerInfo, error) {
	s, err := c.js.Stream(ctx, stream)
	if err != nil {
		return nil, nil, fmt.Errorf("stream %s: %w", stream, err)
	}
	var read interface {
		CachedInfo() *jetstream.ConsumerInfo
	}
	if read, err = s.Consumer(ctx, consumer); errors.Is(err, jetstream.ErrNotPullConsumer) {
		read, err = s.PushConsumer(ctx, consumer)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("consumer %s of stream %s: %w", consumer, stream, err)
	}
	return s, read.CachedInfo(), nil
}
