package jsstore

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull/broker"
)

// feedStarts are where the feeds that this process has begun anew begin, by
// consumer.
type feedStarts struct {
	mu sync.Mutex
	at map[uint32]uint64
}

func (f *feedStarts) get(consumer uint32) (uint64, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	seq, ok := f.at[consumer]
	return seq, ok
}

func (f *feedStarts) set(consumer uint32, seq uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.at == nil {
		f.at = map[uint32]uint64{}
	}
	f.at[consumer] = seq
}

// startFeed says in cfg where a consumer's feed begins.
//
// With a server of its own a process begins each feed anew, at the first message
// without a record. The server would go on where the last process was, but what
// that one had not settled, even what it handed back, only after the whole ack
// wait: a server that starts knows that a message was delivered, and not that it
// was given back. Whoever shares a server leaves the feed alone, since another
// node may be reading it.
//
// A feed that is there keeps the start that it has, whoever made it: the server
// takes no other, and a store may have had a server of its own before it was
// shared.
func (s *Store) startFeed(ctx context.Context, c broker.Consumer, cfg *jetstream.ConsumerConfig) error {
	start, err := s.beginFeed(ctx, c)
	if err != nil {
		return fmt.Errorf("begin the feed anew: %w", err)
	}
	cfg.DeliverPolicy, cfg.OptStartSeq = jetstream.DeliverByStartSequencePolicy, start
	feed, err := s.js.Consumer(ctx, s.cfg.messages(), feedName(c.Number))
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read where the feed begins: %w", err)
	}
	has := feed.CachedInfo().Config
	cfg.DeliverPolicy, cfg.OptStartSeq, cfg.OptStartTime = has.DeliverPolicy, has.OptStartSeq, has.OptStartTime
	return nil
}

// beginFeed deletes a feed that is to begin anew, once in a process, and returns
// the sequence that a feed begins at that is not there.
func (s *Store) beginFeed(ctx context.Context, c broker.Consumer) (uint64, error) {
	if s.cfg.Shared {
		return c.Since + 1, nil
	}
	if seq, ok := s.feedStarts.get(c.Number); ok {
		return seq, nil
	}
	// Read before the index is: up to there the index has every message.
	seen := s.messagesSeen.reached()
	seq := s.index.firstUntried(c, seen)
	err := s.js.DeleteConsumer(ctx, s.cfg.messages(), feedName(c.Number))
	if err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) {
		return 0, err
	}
	s.feedStarts.set(c.Number, seq)
	return seq, nil
}

// firstUntried is the sequence of a consumer's first message that has no record
// of its job, or what comes after the last that was seen.
func (x *index) firstUntried(c broker.Consumer, seen uint64) uint64 {
	x.mu.RLock()
	defer x.mu.RUnlock()
	k := x.consumers[c.Number]
	if k == nil {
		return c.Since + 1
	}
	first := max(c.Since, seen) + 1
	k.channel.messages.ascend(&entry{seq: c.Since}, func(m entry) bool {
		if _, tried := k.recorded(m.seq); tried {
			return true
		}
		first = min(first, m.seq)
		return false
	})
	return first
}
