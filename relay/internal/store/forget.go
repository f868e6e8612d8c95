package store

import (
	"context"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// forgottenAge is how long the bucket says that a receiver was forgotten, for processes that were cut off from the server.
const forgottenAge = 30 * 24 * time.Hour

// ForgetReceiver removes the entry and the rate window of a receiver that was deleted. ErrConflict: it was configured again.
func (s *Registry) ForgetReceiver(ctx context.Context, r Receiver) error {
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
