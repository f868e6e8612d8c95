package natsembed

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Sync determines when the server syncs its files to disk. If the machine loses power, messages that were acknowledged but not yet synced are
// lost. If the process is killed, nothing is lost.
type Sync int64

const (
	// SyncGroup is for programs that call [Server.Durable] or [Server.Publish] before they report a write to others. One sync serves
	// all callers that wait. The server syncs all other writes every 2 s. SyncGroup is the default.
	SyncGroup Sync = 0
	// SyncEach makes the server sync each write before it acknowledges the write. Clients that publish over TCP need it, because they
	// cannot call [Server.Durable].
	SyncEach Sync = -1
	// noSync is not valid.
	noSync Sync = math.MinInt64

	// groupInterval is the interval of the server's own syncs with SyncGroup.
	groupInterval = 2 * time.Second
)

// SyncEvery makes the server sync at an interval, which must be positive. [Server.Durable] syncs at once.
func SyncEvery(interval time.Duration) Sync {
	if interval <= 0 {
		return noSync
	}
	return Sync(interval)
}

// leastSync is the shortest interval that ParseSync accepts.
const leastSync = 10 * time.Millisecond

// ParseSync parses a setting: "always" is [SyncGroup], "each" is [SyncEach], and a duration of at least 10ms is [SyncEvery].
func ParseSync(text string) (Sync, error) {
	switch text {
	case "always":
		return SyncGroup, nil
	case "each":
		return SyncEach, nil
	}
	every, err := time.ParseDuration(text)
	if err != nil || every < leastSync {
		return noSync, fmt.Errorf("%q is neither always nor each nor a duration of at least %v, such as 2m", text, leastSync)
	}
	return SyncEvery(every), nil
}

// interval returns the server's interval between syncs.
func (s Sync) interval() (time.Duration, error) {
	switch {
	case s == SyncGroup || s == SyncEach:
		return groupInterval, nil
	case s < 0:
		return 0, errors.New("natsembed: the interval of SyncEvery is not positive: use SyncGroup or SyncEach, or give another")
	}
	return time.Duration(s), nil
}

// Sync returns when the server syncs.
func (s *Server) Sync() Sync { return s.options.Sync }

// Durable returns once everything that the server has acknowledged on a stream before the call is on disk: messages, deletes, and the
// configuration of the stream. Concurrent calls share a sync. The stream is in the default account, and its storage is a file. Consumers,
// and so their positions, are not synced.
//
// A sync that fails is not repeated, because the system may have dropped the data. From then on each call returns that error, until the
// process is restarted. ctx ends the wait, not the sync.
//
// On the file systems ext4 and btrfs nothing is lost after Durable has returned. On others a loss of power can take messages of an old
// block file that the server has rewritten in the 2 s before, or since the last call.
func (s *Server) Durable(ctx context.Context, stream string) error {
	return s.DurableAt(ctx, stream, 0)
}

// DurableAt is [Server.Durable] for the message with sequence seq. It returns at once if an earlier sync covered that sequence, even if it
// covered the message of an earlier stream of the same name, until a call has synced the recreated stream.
func (s *Server) DurableAt(ctx context.Context, stream string, seq uint64) error {
	switch {
	case ctx == nil:
		return errNoContext
	case s.disk == nil:
		return errors.New("natsembed: the server was not started")
	case stream == "" || strings.ContainsAny(stream, `/\. *>`):
		return fmt.Errorf("natsembed: %q is not the name of a stream", stream)
	case s.options.Sync == SyncEach:
		return nil
	}
	g, ok := s.groups.Load(stream)
	if !ok {
		g, _ = s.groups.LoadOrStore(stream, newGroup(s.dir, stream, s.disk))
	}
	err := g.(*group).waitAt(ctx, seq)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("natsembed: sync stream %q: it does not exist, or its storage is not a file: %w", stream, err)
	}
	if err != nil {
		return fmt.Errorf("natsembed: sync stream %q: %w", stream, err)
	}
	return nil
}

// SyncFailure returns the first error of the system in a sync of [Server.Durable], or nil. After such an error, Durable always fails.
func (s *Server) SyncFailure() error {
	if s.disk == nil {
		return nil
	}
	return s.disk.failure()
}

// Publish publishes a message to a stream of this server, and returns when the message is on disk. js is a connection to the server. If
// the message was stored and the sync failed, Publish returns the acknowledgement and the error.
func (s *Server) Publish(ctx context.Context, js jetstream.JetStream, msg *nats.Msg, opts ...jetstream.PublishOpt) (*jetstream.PubAck, error) {
	switch {
	case ctx == nil:
		return nil, errNoContext
	case js == nil:
		return nil, errors.New("natsembed: publish: js is nil: pass a connection to the server, as jetstream.New returns it")
	case msg == nil:
		return nil, errors.New("natsembed: publish: msg is nil")
	}
	ack, err := js.PublishMsg(ctx, msg, opts...)
	if err != nil {
		return nil, err
	}
	return ack, s.Durable(ctx, ack.Stream)
}
