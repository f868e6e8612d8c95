package store

import (
	"context"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// forgottenAge is how long the bucket says that a receiver was forgotten, for processes that were cut off from the server.
const forgottenAge = 30 * 24 * time.Hour

// AnyEntry tells whether a queue has an entry for a receiver or sender. The leader of the stream says so: a consumer could be gone, and
// what this process has seen could be old.
func (s *Store) AnyEntry(ctx context.Context, q Queue, owner string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	first, err := s.First(ctx, q, s.QueueFilter(q, owner), 1)
	return first != 0, err
}

// ForgetReceiver removes the entry and the rate window of a receiver that was deleted. ErrConflict: it was configured again.
func (s *Store) ForgetReceiver(ctx context.Context, r Receiver) error {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	window, err := s.Window(ctx, r.Name)
	if err != nil {
		return err
	}
	if window.Revision != 0 {
		if err := purge(ctx, s.state, windowKey(r.Name), window.Revision); err != nil {
			return err
		}
	}
	return purge(ctx, s.config, keyReceiver+Token(r.Name), r.Revision)
}

func purge(ctx context.Context, bucket jetstream.KeyValue, key string, revision uint64) error {
	if err := bucket.Purge(ctx, key, jetstream.LastRevision(revision), jetstream.PurgeTTL(forgottenAge)); err != nil {
		return configError("purge", key, err)
	}
	return nil
}
