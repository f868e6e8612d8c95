package journal

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull/broker/internal/domain"
	"github.com/jetpull/jetpull/internal/jsstream"
)

// Prune deletes messages and the records of their jobs, and returns the number of deleted messages. It deletes the messages first, also on disk: a
// record without its message is harmless, but a message without its records would be delivered again.
func (s *messages) Prune(ctx context.Context, seqs []uint64) (int, error) {
	if err := s.messageWrites.Failure(); err != nil {
		return 0, err
	}
	var mu sync.Mutex
	deleted := make(map[uint64]string, len(seqs)) // the tokens of their channels, by sequence
	err := atOnce(seqs, func(seq uint64) error {
		token, _ := s.Index.ChannelOf(seq)
		s.awaitNews(ctx, seq, newsWait)
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
	// Delete the records even if ctx has ended. The next start would not see the messages, and so would never find their records.
	return len(deleted), errors.Join(err, s.forget(context.WithoutCancel(ctx), deleted))
}

// deleteMessage deletes a message, unless a job of it is being queued again, or has been since the message was found.
func (s *messages) deleteMessage(ctx context.Context, seq uint64) (done bool, err error) {
	end, ok := s.inUse.begin(seq, deleting)
	if !ok {
		return false, nil
	}
	defer end()
	if _, settled := s.Index.ChannelOf(seq); !settled {
		return false, nil
	}
	// A delete that has begun is completed: the end of ctx would end only the wait for its answer.
	err = s.delete(context.WithoutCancel(ctx), seq)
	if errors.Is(err, domain.ErrNotFound) {
		err = nil
	}
	return err == nil, err
}

// delete deletes a message. It returns [domain.ErrNotFound] if the message was already deleted. The server's own error does not give that reason.
func (s *base) delete(ctx context.Context, seq uint64) error {
	err := s.messageStream.DeleteMsg(ctx, seq)
	if err == nil {
		return nil
	}
	if errors.Is(err, jetstream.ErrMsgDeleteUnsuccessful) {
		if _, now := s.reader.At(ctx, s.messageStream, seq); errors.Is(now, domain.ErrNotFound) {
			return now
		}
	}
	return fmt.Errorf("%w: delete message %d: %w", domain.ErrUnavailable, seq, err)
}

// sideBySide is the maximum number of parallel requests of one call.
const sideBySide = 32

// atOnce calls f for each item, for up to sideBySide at a time, and returns the first error. After an error it starts no more calls.
func atOnce[T any](items []T, f func(T) error) error {
	if len(items) == 0 {
		return nil // the most frequent case, in which all messages are cached
	}
	failed, fail := context.WithCancelCause(context.Background())
	defer fail(nil)
	var running sync.WaitGroup
	slots := make(chan struct{}, sideBySide)
	for _, item := range items {
		if slots <- struct{}{}; failed.Err() != nil {
			break
		}
		running.Go(func() {
			defer func() { <-slots }()
			if err := f(item); err != nil {
				fail(err)
			}
		})
	}
	running.Wait()
	return context.Cause(failed)
}

// forgetGone removes a message from the index if the store confirms its deletion. Another node deleted it and the notice is late or lost, or a
// process was killed after it had deleted the message and before its records. The store must be asked, because the report of the deletion may come
// from a replica that is behind.
func (s *messages) forgetGone(ctx context.Context, seq uint64, token string) error {
	if _, err := s.reader.At(ctx, s.messageStream, seq); !errors.Is(err, domain.ErrNotFound) {
		return err
	}
	s.awaitNews(ctx, seq, newsWait)
	return s.forget(ctx, map[uint64]string{seq: token})
}

// forget deletes the records of deleted messages. It announces the deletions.
func (s *messages) forget(ctx context.Context, deleted map[uint64]string) error {
	if len(deleted) == 0 {
		return nil
	}
	if err := s.messageWrites.DurableAt(ctx, 0); err != nil {
		return err
	}
	gone := map[string][]uint64{} // by channel
	defer func() {
		for token, seqs := range gone {
			s.announce(notice{Token: token, Seqs: seqs})
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

// newsWait limits the wait for a message before its deletion. If the feed reported a message after its removal, it would be added again.
const newsWait = 2 * time.Second

// awaitNews waits for a limited time until the feed has reported a message. If another node deletes the message meanwhile, the feed never reports it.
func (s *base) awaitNews(ctx context.Context, seq uint64, limit time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if err := s.messagesSeen.Wait(ctx, seq); err != nil {
		s.log.Debug("no news of a message", "sequence", seq, "error", err)
	}
}

func (s *messages) Stored(ctx context.Context) (first, last uint64, err error) {
	state, err := jsstream.AskState(ctx, s.messageStream)
	if err != nil {
		return 0, 0, err
	}
	return state.FirstSeq, state.LastSeq, s.messageWrites.DurableAt(ctx, state.LastSeq)
}

// ForgetConsumer implements admin.Messages. It runs after the consumer's removal is on disk. Otherwise a power failure could restore the consumer
// without its records, and it would get everything again.
func (s *messages) ForgetConsumer(ctx context.Context, c domain.Consumer) error {
	ctx, cancel := context.WithTimeout(ctx, jsstream.CommitTimeout)
	defer cancel()
	err := s.attemptStream.Purge(ctx, jetstream.WithPurgeSubject(s.cfg.attemptSubject("*", c.Number, "*")))
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
