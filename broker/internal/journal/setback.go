package journal

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull/broker/internal/domain"
	"github.com/jetpull/jetpull/internal/jsstream"
)

// The servers of a cluster can set a stream back to an older state. If they set the messages back but not the records of jobs, the next message would
// get the sequence of a lost message. Its jobs would inherit the states of the lost message's jobs: delivered, or dead. So a sequence that this
// process knows is never used again.

// checkMarks detects streams that were set back while no broker ran.
func (s *Store) checkMarks(ctx, run context.Context) error {
	if !s.cfg.Shared {
		return nil
	}
	marks := jsstream.Marks{
		JS: s.js, Log: s.log, Streams: []jetstream.Stream{s.registryStream, s.messageStream, s.jobStream},
		Places: []jsstream.Place{
			{Stream: s.registryStream, Subject: "$KV." + s.cfg.registry() + ".seen"}, {Stream: s.attemptStream, Subject: s.cfg.Name + ".a.seen"},
		},
	}
	return marks.Follow(ctx, run, &s.running)
}

// known returns the highest sequence of a message that this process has read or stored, or to which a record or a consumer refers.
func (s *base) known() uint64 { return max(s.messagesSeen.Reached(), s.referred.Load()) }

// noteSequence records the sequence of a message to which a record or a consumer refers.
func (s *base) noteSequence(seq uint64) { raise(&s.referred, seq) }

func raise(highest *atomic.Uint64, seq uint64) {
	for old := highest.Load(); seq > old && !highest.CompareAndSwap(old, seq); {
		old = highest.Load()
	}
}

// takeBack deletes a message that got the sequence of a lost message.
func (s *messages) takeBack(ctx context.Context, seq uint64) error {
	if err := s.delete(context.WithoutCancel(ctx), seq); err != nil {
		return err
	}
	if err := s.refill(ctx); err != nil {
		return fmt.Errorf("%w: %w", domain.ErrUnavailable, err)
	}
	return fmt.Errorf("%w: the stream of messages was set back to an older state, and nothing was stored: send the message again", domain.ErrUnavailable)
}

// refill uses up the known sequences if the stream of messages was set back, and reports that. Open also calls it after everything has been read.
func (s *base) refill(ctx context.Context) error {
	select {
	case s.refilling <- struct{}{}:
		defer func() { <-s.refilling }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	f := s.messageFeed
	_, err := f.Refill(ctx)
	return err
}
