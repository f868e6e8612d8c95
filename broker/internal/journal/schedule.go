package journal

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/jetpull/jetpull/broker/internal/domain"
	"github.com/jetpull/jetpull/internal/jsstream"
)

// Schedule stores a message to broadcast at a time. If the ID exists, it returns [domain.ErrDuplicateMessage]. The server holds the message and
// publishes it on its broadcast subject at that time.
func (s *messages) Schedule(ctx context.Context, m domain.Message, at time.Time) error {
	m.ReceivedAt = s.Index.Clock.Now()
	seq, err := s.commit(ctx, m, Config.scheduleSubject, at, nats.Header{
		headerSchedule: {schedulePrefix + at.UTC().Format(time.RFC3339)},
		headerTarget:   {s.cfg.messageSubject(domain.SubjectToken(m.Channel), domain.SubjectToken(m.ID))},
	})
	if err != nil {
		return err
	}
	if err := s.messageWrites.DurableAt(ctx, seq); err != nil {
		return err
	}
	s.awaitNews(ctx, seq, catchUp) // a schedule must be listed when the caller gets a success
	return nil
}

// Scheduled returns a scheduled message, before or after its broadcast.
func (s *messages) Scheduled(ctx context.Context, channel, id string) (domain.Scheduled, error) {
	token, idToken := domain.SubjectToken(channel), domain.SubjectToken(id)
	raw, err := s.Last(ctx, s.messageStream, s.cfg.scheduleSubject(token, idToken))
	if errors.Is(err, domain.ErrNotFound) {
		raw, err = s.Last(ctx, s.messageStream, s.cfg.messageSubject(token, idToken))
		if err == nil && raw.Header.Get(headerScheduler) == "" {
			err = fmt.Errorf("%w: message %q was not scheduled", domain.ErrNotFound, id)
		}
	}
	if err != nil {
		return domain.Scheduled{}, err
	}
	return decodeMessage(raw)
}

// CancelScheduled cancels a pending schedule. It returns [domain.ErrNotFound] if there is none.
func (s *messages) CancelScheduled(ctx context.Context, channel, id string) error {
	if err := s.messageWrites.Failure(); err != nil {
		return err
	}
	token := domain.SubjectToken(channel)
	subject := s.cfg.scheduleSubject(token, domain.SubjectToken(id))
	known := s.Index.Waiting(token, subject) // read before the stream: if the stream does not have it then, it is gone
	raw, err := s.Last(ctx, s.messageStream, subject)
	if known != 0 && errors.Is(err, domain.ErrNotFound) {
		// The known sequence comes from a replica that may be ahead of the leader.
		if raw, err = s.reader.At(ctx, s.messageStream, known); errors.Is(err, domain.ErrNotFound) {
			s.announce(notice{Token: token, Seqs: []uint64{known}})
		}
	}
	if errors.Is(err, domain.ErrNotFound) {
		return s.onDisk(ctx, err)
	}
	if err != nil {
		return err
	}
	// This continues even if the caller hangs up, because the index must follow the server's delete. The wait for the disk has no limit, as
	// elsewhere: the schedule is deleted, and if this returned an error, the caller's next attempt would get a 404.
	asked, cancel := context.WithTimeout(context.WithoutCancel(ctx), jsstream.CommitTimeout)
	defer cancel()
	s.awaitNews(asked, raw.Sequence, newsWait)
	if err := s.delete(asked, raw.Sequence); errors.Is(err, domain.ErrNotFound) {
		return s.onDisk(ctx, fmt.Errorf("%w: message %q was broadcast or cancelled meanwhile", domain.ErrNotFound, id))
	} else if err != nil {
		return fmt.Errorf("cancel message %q: %w", id, err)
	}
	s.announce(notice{Token: token, Seqs: []uint64{raw.Sequence}})
	return s.messageWrites.DurableAt(ctx, 0)
}
