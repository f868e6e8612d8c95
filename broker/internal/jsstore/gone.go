package jsstore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull/broker/internal/domain"
	"github.com/jetpull/jetpull/broker/internal/streams"
)

// gates keep the pruner and those who queue a settled job again apart, in this process: the pruner holds the gate of a
// message for writing, the others for reading.
type gates [64]sync.RWMutex

func (g *gates) of(seq uint64) *sync.RWMutex { return &g[seq%uint64(len(g))] }

// revive is called before a settled job is queued again, and the function that it returns after that. In between its
// message is not pruned here.
func (s *messages) revive(ctx context.Context, id domain.JobID) (done func(), err error) {
	gate := s.gates.of(id.Seq)
	gate.RLock()
	_, err = s.At(ctx, s.messageStream, id.Seq)
	if err == nil {
		return gate.RUnlock, nil
	}
	gate.RUnlock()
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil, fmt.Errorf("%w: job %s, its message was pruned", domain.ErrNotFound, id)
	}
	return nil, fmt.Errorf("%w: read message %d: %w", domain.ErrUnavailable, id.Seq, err)
}

// vanished forgets messages of which the store has said that they are gone. The notice of another node may not have come yet; or
// it was lost in an outage, together with the records that were deleted with the messages.
func (s *messages) vanished(ctx context.Context, seqs []uint64) error {
	gone := map[uint64]string{}
	for _, seq := range seqs {
		if token, _ := s.index.ChannelOf(seq); token != "" {
			gone[seq] = token
		}
	}
	if len(gone) > 0 {
		s.awaitNews(ctx, gone)
	}
	return s.forget(ctx, gone)
}

// recordVanished forgets the message of a job whose record is gone: records are deleted after their message only.
func (s *messages) recordVanished(ctx context.Context, id domain.JobID) error {
	consumer, ok := s.reg.numbered(id.Consumer)
	if !ok {
		return nil // with the consumer
	}
	return s.forgetStrays(ctx, map[uint64]string{id.Seq: streams.EncodeToken(consumer.Channel)})
}

// forgetStrays deletes the records of messages of which the index knows nothing, or no record, if the store says that they are
// gone: the news may come from a replica that is behind.
func (s *messages) forgetStrays(ctx context.Context, strays map[uint64]string) error {
	var mu sync.Mutex
	gone := map[uint64]string{}
	err := atOnce(slices.Collect(maps.Keys(strays)), func(seq uint64) error {
		_, err := s.At(ctx, s.messageStream, seq)
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			mu.Lock()
			defer mu.Unlock()
			gone[seq] = strays[seq]
			return nil
		}
		return err
	})
	return errors.Join(err, s.forget(ctx, gone))
}
