package jsstore

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull/broker"
)

const (
	// feedGroup is the priority group of every feed; its pin makes one node
	// dispatch a consumer's messages at a time.
	feedGroup = "dispatch"
	// feedPinTTL is how long a node that died keeps the others waiting.
	feedPinTTL = 15 * time.Second
	// feedAckWait is how long a delivery may go without a sign of life. The
	// reader sends one for everything that it holds.
	feedAckWait = 15 * time.Second
)

func (s *Store) feedConfig(f broker.Feed) jetstream.ConsumerConfig {
	return jetstream.ConsumerConfig{
		Durable:        feedName(f.Consumer.Number),
		Description:    "broker: dispatch to " + encodeToken(f.Consumer.ID),
		FilterSubject:  s.cfg.messageSubject(encodeToken(f.Consumer.Channel), "*"),
		DeliverPolicy:  jetstream.DeliverByStartSequencePolicy,
		OptStartSeq:    f.Consumer.Since + 1,
		AckPolicy:      jetstream.AckExplicitPolicy,
		AckWait:        feedAckWait,
		MaxDeliver:     -1,
		MaxAckPending:  max(1000, 4*f.Window),
		PriorityPolicy: jetstream.PriorityPolicyPinned,
		PriorityGroups: []string{feedGroup},
		PinnedTTL:      feedPinTTL,
	}
}

// Feed implements broker.Store.
func (s *Store) Feed(ctx context.Context, f broker.Feed) error {
	consumer, err := s.js.CreateOrUpdateConsumer(ctx, s.cfg.messages(), s.feedConfig(f))
	if err != nil {
		return fmt.Errorf("%w: make the feed of consumer %s: %w", broker.ErrUnavailable, f.Consumer.ID, err)
	}
	slots := make(chan struct{}, f.Window)
	var wg sync.WaitGroup
	cc, err := consumer.Consume(func(msg jetstream.Msg) {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			if err := s.deliver(ctx, f, msg); err != nil {
				_ = msg.Nak()
				return
			}
			_ = msg.Ack()
		})
	}, jetstream.PullPriorityGroup(feedGroup), jetstream.PullMaxMessages(f.Window))
	if err != nil {
		return err
	}
	<-ctx.Done()
	cc.Stop()
	<-cc.Closed()
	wg.Wait()
	return nil
}

// deliver hands one message to the broker.
func (s *Store) deliver(ctx context.Context, f broker.Feed, msg jetstream.Msg) error {
	meta, err := msg.Metadata()
	if err != nil {
		return err
	}
	m, _, err := decodeMessage(meta.Sequence.Stream, meta.Timestamp, msg.Headers(), msg.Data())
	if err != nil {
		// Nobody can deliver it, now or later; it must not hold up the others.
		s.log.Error("message cannot be read and is skipped", "sequence", meta.Sequence.Stream, "error", err)
		return nil
	}
	return f.Deliver(ctx, broker.Delivery{Job: broker.JobID{Seq: m.Seq, Consumer: f.Consumer.Number}, Message: m})
}
