package jsstore

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/broker"
)

const (
	// feedGroup is the priority group of every feed; its pin makes one node
	// dispatch a consumer's messages at a time.
	feedGroup = "dispatch"
	// feedPinTTL is how long a node that died keeps the others waiting. A node
	// that only stalls for as long loses its pin and nothing else: what it holds
	// stays its own, and it reads on once it is pinned again.
	feedPinTTL = 5 * time.Second
	// feedAckWait is how long a delivery may go without a sign of life. The
	// reader sends one for everything that it holds. It is longer than the
	// pin's, because a stall of this length makes callbacks happen twice.
	feedAckWait = 15 * time.Second
	// feedPull is how long a pull lasts. Only a new pull keeps the pin, so it
	// is well under the pin's time to live.
	feedPull = feedPinTTL / 3
	// feedClose bounds the handing back of what was read ahead.
	feedClose = 5 * time.Second
)

// feedRetryDelays are the waits before a delivery is made again that could not
// be recorded. Callbacks that failed are not meant: they have a record.
var feedRetryDelays = []time.Duration{100 * time.Millisecond, time.Second, 5 * time.Second}

// feedConfig is how a feed is made, but for where it begins.
func (s *Store) feedConfig(f broker.Feed) jetstream.ConsumerConfig {
	return jetstream.ConsumerConfig{
		Durable:        feedName(f.Consumer.Number),
		Description:    "broker: dispatch to " + encodeToken(f.Consumer.ID),
		FilterSubject:  s.cfg.messageSubject(encodeToken(f.Consumer.Channel), "*"),
		AckPolicy:      jetstream.AckExplicitPolicy,
		AckWait:        feedAckWait,
		MaxDeliver:     -1,
		MaxAckPending:  max(1000, 4*f.Window),
		PriorityPolicy: jetstream.PriorityPolicyPinned,
		PriorityGroups: []string{feedGroup},
		PinnedTTL:      feedPinTTL,
	}
}

// Feed implements broker.Store. Once the disk has failed it stands until ctx ends:
// a callback whose outcome cannot be kept would be made again after the restart,
// and deliveries that are refused would come back, with a line in the log each.
func (s *Store) Feed(ctx context.Context, f broker.Feed) error {
	reading, halt := context.WithCancel(ctx)
	defer halt()
	err := s.diskFailure()
	if err == nil {
		err = s.readFeed(reading, halt, f)
	}
	failed := s.diskFailure()
	if failed == nil || ctx.Err() != nil {
		return err
	}
	s.log.Error("no more callbacks to a consumer", "consumer", f.Consumer.ID, "error", failed)
	<-ctx.Done()
	return nil
}

// readFeed reads until ctx ends, and calls halt once the disk has failed.
func (s *Store) readFeed(ctx context.Context, halt func(), f broker.Feed) error {
	cfg := s.feedConfig(f)
	if err := s.startFeed(ctx, f.Consumer, &cfg); err != nil {
		return feedError(f, "make", err)
	}
	if _, err := s.js.CreateOrUpdateConsumer(ctx, s.cfg.messages(), cfg); err != nil {
		return feedError(f, "make", err)
	}
	sub, err := jetpull.Subscribe(ctx, s.js, s.cfg.messages(), feedName(f.Consumer.Number),
		jetpull.Group(feedGroup), jetpull.MaxWait(feedPull), jetpull.Logger(s.log.With("consumer", f.Consumer.ID)))
	if err != nil {
		return feedError(f, "read", err)
	}
	defer s.closeFeed(ctx, sub, f)
	handle := func(work context.Context, msg *jetpull.Msg) error {
		err := s.diskFailure()
		if err != nil {
			halt()
		} else {
			err = s.deliver(work, f, msg)
		}
		if err != nil && ctx.Err() != nil {
			// Another node shall have it at once.
			return jetpull.Retry(0, err)
		}
		return err
	}
	err = sub.Consume(ctx, handle,
		jetpull.Concurrency(f.Window), jetpull.DrainTimeout(f.Drain), jetpull.RetryDelays(feedRetryDelays...),
		jetpull.OnPin(func(jetpull.PinEvent) { f.Pinned(true) }),
		jetpull.OnUnpin(func(jetpull.PinEvent) { f.Pinned(false) }),
		jetpull.OnError(func(err error) { s.log.Info("feed", "consumer", f.Consumer.ID, "error", err) }))
	if err != nil {
		return feedError(f, "read", err)
	}
	return nil
}

// closeFeed hands back what was read ahead, and the pin, so that another node
// need not wait for its time to live.
func (s *Store) closeFeed(ctx context.Context, sub *jetpull.Subscription, f broker.Feed) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), feedClose)
	defer cancel()
	if _, pinned := sub.Pin(); pinned {
		if err := sub.Unpin(ctx); err != nil {
			s.log.Info("the pin of a feed is left to expire", "consumer", f.Consumer.ID, "error", err)
		}
		f.Pinned(false)
	}
	if err := sub.Close(ctx); err != nil {
		s.log.Warn("closing a feed", "consumer", f.Consumer.ID, "error", err)
	}
}

func feedError(f broker.Feed, what string, err error) error {
	return fmt.Errorf("%w: %s the feed of consumer %s: %w", broker.ErrUnavailable, what, f.Consumer.ID, err)
}

// deliver hands one message to the broker.
func (s *Store) deliver(ctx context.Context, f broker.Feed, msg *jetpull.Msg) error {
	meta, err := msg.Metadata()
	if err != nil {
		return err
	}
	m, _, err := decodeMessage(meta.Sequence.Stream, meta.Timestamp, msg.Headers(), msg.Data())
	if err != nil {
		// Nobody can deliver it, now or later; it must not hold up the others.
		return jetpull.Terminate("message cannot be read", err)
	}
	if c, ok := s.ConsumerByNumber(f.Consumer.Number); ok && !c.Wants(m.Seq, m.EventType) {
		// It is of an event type that the consumer does not get, or from before it was made.
		return nil
	}
	return f.Deliver(ctx, broker.Delivery{Job: broker.JobID{Seq: m.Seq, Consumer: f.Consumer.Number}, Message: m})
}

// FeedState tells how far the feed of a push consumer is.
type FeedState struct {
	Pending    uint64 // messages not read yet
	Unsettled  int    // messages read and not settled
	Dispatcher string // the pin of the node that reads, empty if none does
}

// FeedState asks the server about the feed of a push consumer.
func (s *Store) FeedState(ctx context.Context, c broker.Consumer) (FeedState, error) {
	consumer, err := s.js.Consumer(ctx, s.cfg.messages(), feedName(c.Number))
	if err != nil {
		return FeedState{}, fmt.Errorf("%w: feed of consumer %s: %w", broker.ErrUnavailable, c.ID, err)
	}
	info := consumer.CachedInfo()
	state := FeedState{Pending: info.NumPending, Unsettled: info.NumAckPending}
	for _, g := range info.PriorityGroups {
		state.Dispatcher = g.PinnedClientID
	}
	return state, nil
}
