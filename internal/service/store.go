package service

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull/internal/systems"
)

// CheckStore refuses the store of an embedded server that has streams, but none of the system: it is another program's, such as the relay's
// where the broker starts.
func CheckStore(ctx context.Context, js jetstream.JetStream, dir, system string) error {
	foreign, owner := "", ""
	streams := js.ListStreams(ctx)
	for info := range streams.Info() {
		of := systems.OfStream(info.Config.Name, info.Config.Subjects)
		if of == system {
			return nil
		}
		if foreign == "" || of != "" {
			foreign, owner = info.Config.Name, of
		}
	}
	if err := streams.Err(); err != nil {
		return fmt.Errorf("[nats] store-dir %s: list its streams: %w", dir, err)
	}
	if foreign == "" {
		return nil
	}
	who := "another program"
	if owner != "" {
		who = "a " + owner
	}
	return fmt.Errorf("[nats] store-dir %s: it is the store of %s: it has the stream %s; give the %s a folder of its own", dir, who, foreign, system)
}
