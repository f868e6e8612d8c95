package journal

import (
	"context"
	"fmt"

	"github.com/jetpull/jetpull/broker/internal/domain"
	"github.com/jetpull/jetpull/internal/jsstream"
)

// A cluster can forget: its servers set a stream back to an older state. If the messages were set back, and the records of jobs were not, the
// next message would get the sequence of one that is gone, and the jobs of it would be those of the new one: delivered, or dead. So a
// sequence that is known here is never used again.

// known returns the highest sequence of a message that this process has read or stored, or that a record or a consumer refers to.
func (s *base) known() uint64 { return max(s.messagesSeen.Reached(), s.referred.Load()) }

// noteSequence remembers such a sequence.
func (s *base) noteSequence(seq uint64) {
	for old := s.referred.Load(); seq > old && !s.referred.CompareAndSwap(old, seq); {
		old = s.referred.Load()
	}
}

// takeBack deletes a message that has the sequence of a message that is gone.
func (s *messages) takeBack(ctx context.Context, seq uint64) error {
	if err := s.delete(context.WithoutCancel(ctx), seq); err != nil {
		return err
	}
	if err := s.refill(ctx); err != nil {
		return fmt.Errorf("%w: %w", domain.ErrUnavailable, err)
	}
	return fmt.Errorf("%w: the stream of messages was set back to an older state, and nothing was stored: send the message again", domain.ErrUnavailable)
}

// refill uses up the known sequences if the stream of messages was set back, and reports that. It is also called at the start, after
// everything was read.
func (s *base) refill(ctx context.Context) error {
	select {
	case s.refilling <- struct{}{}:
		defer func() { <-s.refilling }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	state, err := jsstream.AskState(ctx, s.messageStream)
	if err != nil {
		return fmt.Errorf("read the state of the messages: %w", err)
	}
	known := s.known()
	if state.LastSeq >= known {
		return nil
	}
	forgotten, err := jsstream.Refill(ctx, s.js, s.messageStream, known)
	if forgotten > 0 {
		s.log.Error("the stream of messages was set back to an older state: its servers have lost messages that they had acknowledged", "stream",
			s.cfg.messages(), "messages", forgotten)
	}
	return err
}
