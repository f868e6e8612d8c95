package jsstore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull/broker/internal/domain"
)

// Finished returns up to limit sequences of messages, stored before the
// given time, of which no job is queued or in flight.
func (s *messages) Finished(before time.Time, limit int) []uint64 {
	return s.index.Finished(before, limit)
}

// Prune deletes messages and the records of their jobs. The messages go first, on disk too: a record
// without its message does no harm, but a message without its records would be
// delivered again.
func (s *messages) Prune(ctx context.Context, seqs []uint64) error {
	if err := s.messageWrites.Failure(); err != nil {
		return err
	}
	deleted, err := s.deleteMessages(ctx, seqs)
	// Finished even if ctx has ended: the next start does not see the messages,
	// and would never come upon their records.
	return errors.Join(err, s.forget(context.WithoutCancel(ctx), deleted))
}

// deleteMessages returns what it has deleted, by sequence with the token of the
// channel, also with an error.
func (s *messages) deleteMessages(ctx context.Context, seqs []uint64) (map[uint64]string, error) {
	var mu sync.Mutex
	deleted := make(map[uint64]string, len(seqs))
	err := atOnce(seqs, func(seq uint64) error {
		token, _ := s.index.ChannelOf(seq)
		s.awaitNews(ctx, map[uint64]string{seq: token})
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		done, err := s.deleteMessage(ctx, seq)
		if done {
			mu.Lock()
			defer mu.Unlock()
			deleted[seq] = token
		}
		return err
	})
	return deleted, err
}

// deleteMessage deletes a message, unless one of its jobs is queued again, or was since the message was found.
func (s *messages) deleteMessage(ctx context.Context, seq uint64) (done bool, err error) {
	end, ok := s.inUse.delete(seq)
	if !ok {
		return false, nil
	}
	defer end()
	if _, settled := s.index.ChannelOf(seq); !settled {
		return false, nil
	}
	// Begun means done: ctx would end the wait for the answer, not the delete.
	if err := s.delete(context.WithoutCancel(ctx), seq); err != nil && !errors.Is(err, domain.ErrNotFound) {
		return false, err
	}
	return true, nil
}

// delete deletes a message. [domain.ErrNotFound] says that it was deleted before: the server's refusal does not give its reason.
func (s *base) delete(ctx context.Context, seq uint64) error {
	err := s.messageStream.DeleteMsg(ctx, seq)
	if err == nil {
		return nil
	}
	if errors.Is(err, jetstream.ErrMsgDeleteUnsuccessful) {
		if _, now := s.At(ctx, s.messageStream, seq); errors.Is(now, domain.ErrNotFound) {
			return now
		}
	}
	return fmt.Errorf("%w: delete message %d: %w", domain.ErrUnavailable, seq, err)
}

// pruneWorkers is how many messages are deleted at a time.
const pruneWorkers = 16

// atOnce calls f for each message, some at a time, and returns the first error; it begins no more after that.
func atOnce(seqs []uint64, f func(seq uint64) error) error {
	work := make(chan uint64)
	var failed atomic.Pointer[error]
	var workers sync.WaitGroup
	for range min(pruneWorkers, len(seqs)) {
		workers.Go(func() {
			for seq := range work {
				if err := f(seq); err != nil {
					failed.CompareAndSwap(nil, &err)
				}
			}
		})
	}
	for _, seq := range seqs {
		if failed.Load() != nil {
			break
		}
		work <- seq
	}
	close(work)
	workers.Wait()
	if err := failed.Load(); err != nil {
		return *err
	}
	return nil
}

// forget deletes the records of messages that were deleted.
func (s *messages) forget(ctx context.Context, deleted map[uint64]string) error {
	if len(deleted) == 0 {
		return nil
	}
	if err := s.messageWrites.Durable(ctx); err != nil {
		return err
	}
	gone := map[string][]uint64{} // by channel
	defer func() {
		for token, seqs := range gone {
			s.tell(notice{Token: token, Seqs: seqs})
		}
	}()
	forgetAttempts, err := s.attemptsForgetter(ctx)
	if err != nil {
		return err
	}
	var mu sync.Mutex
	return atOnce(slices.Collect(maps.Keys(deleted)), func(seq uint64) error {
		if err := forgetAttempts(strconv.FormatUint(seq, 10)); err != nil {
			return err
		}
		if err := s.jobStream.Purge(ctx, jetstream.WithPurgeSubject(s.cfg.Name+".j.*."+strconv.FormatUint(seq, 10))); err != nil {
			return fmt.Errorf("%w: delete the jobs of message %d: %w", domain.ErrUnavailable, seq, err)
		}
		mu.Lock()
		defer mu.Unlock()
		gone[deleted[seq]] = append(gone[deleted[seq]], seq)
		return nil
	})
}

// newsWait bounds the wait for what the streams have to say of a message.
const newsWait = 2 * time.Second

// awaitNews waits until the streams have told of messages, by sequence with the tokens of their channels, and of their
// records. What is written here is in the index at once, and news that comes after it was taken out would put it back.
// Another node may delete a message meanwhile; then there is no more news of it.
func (s *base) awaitNews(ctx context.Context, of map[uint64]string) {
	ctx, cancel := context.WithTimeout(ctx, newsWait)
	defer cancel()
	last, record := uint64(0), uint64(0)
	for seq, token := range of {
		last = max(last, seq)
		for _, j := range s.index.JobsOf(token, seq) {
			record = max(record, j.Revision)
		}
	}
	if err := errors.Join(s.messagesSeen.Wait(ctx, last), s.jobsSeen.Wait(ctx, record)); err != nil {
		s.log.Debug("no news of messages that are deleted", "last", last, "error", err)
	}
}

// attemptsForgetter returns what deletes the attempts at the jobs of a message. Where there are none at all, which one
// question tells, it does nothing.
func (s *base) attemptsForgetter(ctx context.Context) (func(seq string) error, error) {
	info, err := s.attemptStream.Info(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w: state of stream %s: %w", domain.ErrUnavailable, s.cfg.attempts(), err)
	}
	if info.State.Msgs == 0 {
		return func(string) error { return nil }, nil
	}
	return func(seq string) error {
		if err := s.attemptStream.Purge(ctx, jetstream.WithPurgeSubject(s.cfg.attemptSubject(seq, "*", "*"))); err != nil {
			return fmt.Errorf("%w: delete the attempts of message %s: %w", domain.ErrUnavailable, seq, err)
		}
		return nil
	}, nil
}
