package journal

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
	"github.com/jetpull/jetpull/internal/jsstream"
)

// Prune deletes messages and the records of their jobs. The messages go first, on disk too: a record
// without its message does no harm, but a message without its records would be
// delivered again.
func (s *messages) Prune(ctx context.Context, seqs []uint64) error {
	if err := s.messageWrites.Failure(); err != nil {
		return err
	}
	var mu sync.Mutex
	deleted := make(map[uint64]string, len(seqs)) // with the tokens of their channels
	err := atOnce(seqs, func(seq uint64) error {
		token, _ := s.ChannelOf(seq)
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
	// Finished even if ctx has ended: the next start does not see the messages,
	// and would never come upon their records.
	return errors.Join(err, s.forget(context.WithoutCancel(ctx), deleted))
}

// deleteMessage deletes a message, unless one of its jobs is queued again, or was since the message was found.
func (s *messages) deleteMessage(ctx context.Context, seq uint64) (done bool, err error) {
	end, ok := s.inUse.begin(seq, deleting)
	if !ok {
		return false, nil
	}
	defer end()
	if _, settled := s.ChannelOf(seq); !settled {
		return false, nil
	}
	// Begun means done: ctx would end the wait for the answer, not the delete.
	err = s.delete(context.WithoutCancel(ctx), seq)
	if errors.Is(err, domain.ErrNotFound) {
		err = nil
	}
	return err == nil, err
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

// sideBySide is how many requests one call has in progress.
const sideBySide = 32

// atOnce calls f for each item, some at a time, and returns the first error; it begins no more after that.
func atOnce[T any](items []T, f func(T) error) error {
	work := make(chan T)
	var failed atomic.Pointer[error]
	var workers sync.WaitGroup
	for range min(sideBySide, len(items)) {
		workers.Go(func() {
			for item := range work {
				if err := f(item); err != nil {
					failed.CompareAndSwap(nil, &err)
				}
			}
		})
	}
	for _, item := range items {
		if failed.Load() != nil {
			break
		}
		work <- item
	}
	close(work)
	workers.Wait()
	if err := failed.Load(); err != nil {
		return *err
	}
	return nil
}

// forgetGone forgets messages, by sequence with the tokens of their channels, if the store says that they are gone: they were deleted by another
// node whose notice has not come yet or was lost, or by a process that was killed before it had deleted their records. The news may come from
// a replica that is behind.
func (s *messages) forgetGone(ctx context.Context, messages map[uint64]string) error {
	if len(messages) == 0 {
		return nil
	}
	var mu sync.Mutex
	gone := map[uint64]string{}
	err := atOnce(slices.Collect(maps.Keys(messages)), func(seq uint64) error {
		_, err := s.At(ctx, s.messageStream, seq)
		if errors.Is(err, domain.ErrNotFound) {
			mu.Lock()
			defer mu.Unlock()
			gone[seq] = messages[seq]
			return nil
		}
		return err
	})
	if len(gone) > 0 {
		s.awaitNews(ctx, gone)
	}
	return errors.Join(err, s.forget(ctx, gone))
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
	var mu sync.Mutex
	return atOnce(slices.Collect(maps.Keys(deleted)), func(seq uint64) error {
		of := strconv.FormatUint(seq, 10)
		if err := s.attemptStream.Purge(ctx, jetstream.WithPurgeSubject(s.cfg.attemptSubject(of, "*", "*"))); err != nil {
			return fmt.Errorf("%w: delete the attempts of message %d: %w", domain.ErrUnavailable, seq, err)
		}
		if err := s.jobStream.Purge(ctx, jetstream.WithPurgeSubject(s.cfg.Name+".j.*."+of)); err != nil {
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
		for _, j := range s.JobsOf(token, seq) {
			record = max(record, j.Revision)
		}
	}
	if err := errors.Join(s.messagesSeen.Wait(ctx, last), s.jobsSeen.Wait(ctx, record)); err != nil {
		s.log.Debug("no news of messages that are deleted", "last", last, "error", err)
	}
}

// Stored implements admin.Messages.
func (s *messages) Stored(ctx context.Context) (first, last uint64, err error) {
	state, err := jsstream.AskState(ctx, s.messageStream)
	if err != nil {
		return 0, 0, err
	}
	return state.FirstSeq, state.LastSeq, s.messageWrites.DurableAt(ctx, state.LastSeq)
}

// ForgetConsumer implements admin.Messages. A consumer that came back without its records would be sent everything again, so it is gone by now.
func (s *messages) ForgetConsumer(ctx context.Context, c domain.Consumer) error {
	ctx, cancel := context.WithTimeout(ctx, jsstream.CommitTimeout)
	defer cancel()
	err := s.attemptStream.Purge(ctx, jetstream.WithPurgeSubject(s.cfg.attemptSubject("*", strconv.FormatUint(uint64(c.Number), 10), "*")))
	if err == nil {
		err = s.jobStream.Purge(ctx, jetstream.WithPurgeSubject(s.cfg.jobSubject(c.Number, "*")))
	}
	if err == nil {
		err = s.replayTable.Purge(ctx, replayGroup(c.Number))
	}
	if err != nil {
		return fmt.Errorf("%w: delete the jobs of consumer %s: %w", domain.ErrUnavailable, c.ID, err)
	}
	return nil
}
