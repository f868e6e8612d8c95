package store

import (
	"context"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull/internal/registry"
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
		key := windowKey(r.Name)
		if err := s.state.Purge(ctx, key, jetstream.LastRevision(window.Revision), jetstream.PurgeTTL(forgottenAge)); err != nil {
			return configError("purge", key, err)
		}
	}
	return s.receivers.Delete(ctx, registry.ID{Name: r.Name}, r.Revision, forgottenAge)
}
