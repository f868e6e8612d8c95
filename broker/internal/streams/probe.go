package streams

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull/broker/internal/domain"
	"github.com/jetpull/jetpull/internal/jsstream"
)

// Probe shows that an acknowledged write has reached its file, in a stream that is made
// for it and removed again. A server that acknowledged first would make every sync of
// the broker's own worthless, so it is refused.
func Probe(ctx context.Context, js jetstream.JetStream, name, syncDir string) error {
	token := []byte(domain.NewID())
	_, err := jsstream.Make(ctx, js, jetstream.StreamConfig{
		Name: name, Subjects: []string{name}, Storage: jetstream.FileStorage,
		Description: "broker: shows at the start that an acknowledged write is in its file",
	})
	if err != nil {
		return err
	}
	defer func() { _ = js.DeleteStream(ctx, name) }() // the next start would find it
	if _, err := js.Publish(ctx, name, token); err != nil {
		return fmt.Errorf("write to the stream %s: %w", name, err)
	}
	wrote, err := Wrote(syncDir, name, token)
	if err != nil {
		return fmt.Errorf("look for an acknowledged write in its file: %w", err)
	}
	if !wrote {
		return fmt.Errorf("the server %s has acknowledged a write that is not in its file, so a 201 would not mean that a message is on disk: "+
			"use nats-server 2.15.2, or `--sync each`, by which the server syncs all that it writes itself", js.Conn().ConnectedServerVersion())
	}
	return nil
}
