package jsstore

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/jetpull/jetpull/broker/internal/domain"
	"github.com/jetpull/jetpull/broker/internal/jobindex"
	"github.com/jetpull/jetpull/broker/internal/streams"
)

// readers bounds how many messages one call loads at a time.
const readers = 32

// messages takes what is broadcast and finds it again, now, later and until it is pruned.
type messages struct {
	*base
	cache *payloadCache
	inUse inUse
}

// Append stores a message under its ID, or fails with [domain.ErrDuplicateMessage].
func (s *messages) Append(ctx context.Context, m domain.Message) (domain.Message, error) {
	m.Priority = clampPriority(m.Priority)
	m.ReceivedAt = time.Now().UTC()
	header, err := encodeEnvelope(m, time.Time{})
	if err != nil {
		return m, err
	}
	token, idToken := streams.EncodeToken(m.Channel), streams.EncodeToken(m.ID)
	if err := s.awaitsNoTime(ctx, token, s.cfg.scheduleSubject(token, idToken)); err != nil {
		return m, s.refusal(ctx, err)
	}
	seq, err := s.messageWrites.Commit(ctx, &nats.Msg{
		Subject: s.cfg.messageSubject(token, idToken), Header: nats.Header{headerEnvelope: {header}}, Data: m.Payload,
	}, 0)
	if err != nil {
		return m, s.refusal(ctx, err)
	}
	m.Seq = seq
	// At once, as from the stream: whatever is written of a job waits for the disk first.
	s.cache.put(m)
	s.index.AddMessage(token, jobindex.Entry{Seq: seq, At: m.ReceivedAt.UnixNano(), Priority: int32(m.Priority)}, m.EventType)
	return m, s.messageWrites.DurableAt(ctx, seq)
}

// refusal renames a conflict: the subject was expected to be empty. Whoever
// hears that a message is there already will not send it again, so it has to be
// on disk by then.
func (s *messages) refusal(ctx context.Context, err error) error {
	if !errors.Is(err, domain.ErrConflict) {
		return err
	}
	if err := s.messageWrites.Durable(ctx); err != nil {
		return err
	}
	return domain.ErrDuplicateMessage
}

// MaxPayload is the largest payload a message may have. The rest of what the server takes is
// left for the headers.
func (s *messages) MaxPayload() int { return int(s.nc.MaxPayload()) - maxEnvelope - 8<<10 }

// catchUp bounds how long a message waits for its jobs, which another node made a moment ago.
const catchUp = 500 * time.Millisecond

// Message reads a message, whichever node has stored it, and its jobs are
// known here then.
func (s *messages) Message(ctx context.Context, channel, id string) (domain.Message, error) {
	raw, err := s.Last(ctx, s.messageStream, s.cfg.messageSubject(streams.EncodeToken(channel), streams.EncodeToken(id)))
	if err != nil {
		return domain.Message{}, err
	}
	if raw.Sequence > s.messagesSeen.Reached() && s.cfg.Shared {
		// Another node stored it a moment ago, and its jobs follow from the
		// stream. An error means not soon; then the message is all there is.
		wait, cancel := context.WithTimeout(ctx, catchUp)
		defer cancel()
		_ = s.messagesSeen.Wait(wait, raw.Sequence)
	}
	m, _, err := decodeMessage(raw.Sequence, raw.Time, raw.Header, raw.Data)
	return m, err
}

// MessagesAt loads messages by sequence; those that are gone are missing. With
// [domain.ErrUnavailable] it returns those that could be read now.
func (s *messages) MessagesAt(ctx context.Context, seqs []uint64) (map[uint64]domain.Message, error) {
	found := make(map[uint64]domain.Message, len(seqs))
	var missing []uint64
	for _, seq := range seqs {
		if m, ok := s.cache.get(seq); ok {
			found[seq] = m
		} else {
			missing = append(missing, seq)
		}
	}
	if len(missing) == 0 {
		return found, nil
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	var gone []uint64
	var failed error
	slots := make(chan struct{}, readers)
	for _, seq := range missing {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			m, err := s.messageAt(ctx, seq)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				found[seq] = m
			case errors.Is(err, domain.ErrNotFound):
				gone = append(gone, seq)
			default:
				failed = err
			}
		})
	}
	wg.Wait()
	return found, errors.Join(failed, s.vanished(ctx, gone))
}

func (s *messages) messageAt(ctx context.Context, seq uint64) (domain.Message, error) {
	raw, err := s.At(ctx, s.messageStream, seq)
	if err != nil {
		return domain.Message{}, fmt.Errorf("read message %d: %w", seq, err)
	}
	m, _, err := decodeMessage(raw.Sequence, raw.Time, raw.Header, raw.Data)
	if err != nil {
		return domain.Message{Seq: seq, Payload: raw.Data, ReceivedAt: raw.Time.UTC(), Unreadable: fmt.Errorf("%s: %w", raw.Subject, err)}, nil
	}
	s.cache.put(m)
	return m, nil
}

// ListMessages returns a page of a channel's messages.
func (s *messages) ListMessages(ctx context.Context, channel string, page domain.Page) ([]domain.MessageRef, error) {
	seqs := s.index.MessageSeqs(streams.EncodeToken(channel), page)
	messages, err := s.MessagesAt(ctx, seqs)
	if err != nil {
		return nil, err
	}
	refs := make([]domain.MessageRef, 0, len(seqs))
	for _, seq := range seqs {
		if m, ok := messages[seq]; ok && m.Unreadable == nil {
			refs = append(refs, domain.MessageRef{ID: m.ID, Seq: seq})
		}
	}
	return refs, nil
}

// CountMessages counts the messages of a channel.
func (s *messages) CountMessages(channel string) int {
	return s.index.CountMessages(streams.EncodeToken(channel))
}

// clampPriority keeps a priority in the range that the index holds.
func clampPriority(p int) int { return min(max(p, 0), math.MaxInt32) }
