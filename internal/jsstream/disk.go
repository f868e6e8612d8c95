package jsstream

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull/internal/stored"
)

// Disk syncs the streams of an embedded server, as [natsembed.Server] does. A nil Disk leaves that to the server.
type Disk interface {
	// DurableAt returns when a message of a stream is on disk. Sequence 0 means all acknowledged messages.
	DurableAt(ctx context.Context, stream string, seq uint64) error
	// SyncFailure returns why nothing can be confirmed as on disk any more, or nil.
	SyncFailure() error
}

// DurableAt returns when a message of a stream is on disk, as far as this process controls that. Its error is [stored.ErrUnavailable].
func DurableAt(ctx context.Context, disk Disk, stream string, seq uint64) error {
	if disk == nil {
		return nil
	}
	return unsynced(stream, disk.DurableAt(ctx, stream, seq))
}

// SyncFailure returns why writes to a stream can no longer be confirmed as on disk, or nil. Its error is [stored.ErrUnavailable].
func SyncFailure(disk Disk, stream string) error {
	if disk == nil {
		return nil
	}
	return unsynced(stream, disk.SyncFailure())
}

func unsynced(stream string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: sync stream %s: %w", stored.ErrUnavailable, stream, err)
}

// SyncStored syncs data that an earlier process, or the server at its start, may have left in memory, because nothing waits for its sync later, or
// the first wait for it would sync all of it.
func SyncStored(ctx context.Context, disk Disk, streams ...jetstream.Stream) error {
	for _, stream := range streams {
		info := stream.CachedInfo()
		if err := DurableAt(ctx, disk, info.Config.Name, info.State.LastSeq); err != nil {
			return fmt.Errorf("sync the store at the start: %w", err)
		}
	}
	return nil
}
