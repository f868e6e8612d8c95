// Package jsstream creates, reads and follows JetStream streams. It never reports a message as missing that may exist.
//
// A read has three answers: the message, [stored.ErrNotFound] if the stream has none, and [stored.ErrUnavailable] if that is not known
// now. If a replica may be behind, a [Reader] asks the leader. [Follow] passes on the stored messages in order, and a [Progress] says how
// far it has come.
package jsstream

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull/internal/stored"
	"github.com/jetpull/jetpull/internal/watch"
)

// Reader reads single messages of the streams.
type Reader struct {
	js       jetstream.JetStream
	await    func(ctx context.Context) error
	replicas int
}

// NewReader returns a reader of streams that have so many replicas. It calls await before each request: await returns when
// there is a connection, or the reason why the request is not worth sending.
func NewReader(js jetstream.JetStream, replicas int, await func(ctx context.Context) error) *Reader {
	return &Reader{js: js, await: await, replicas: replicas}
}

// Last reads the last message of a subject. With replicas only the leader is
// asked: any other may be behind.
func (r *Reader) Last(ctx context.Context, stream jetstream.Stream, subject string) (*jetstream.RawStreamMsg, error) {
	if r.replicas > 1 {
		return r.AskLeader(ctx, stream.CachedInfo().Config.Name, subject)
	}
	if err := r.await(ctx); err != nil {
		return nil, err
	}
	raw, err := Last(ctx, r.js, stream, subject)
	return raw, ReadError(err, "nothing is stored on "+subject)
}

// AskLeader reads the last message of a subject from the leader of a stream.
func (r *Reader) AskLeader(ctx context.Context, stream, subject string) (*jetstream.RawStreamMsg, error) {
	raw, err := r.fromLeader(ctx, stream, leaderRequest{Last: subject})
	return raw, ReadError(err, "nothing is stored on "+subject)
}

// ReadError is what an error of a read says, such as one of [Last]: [stored.ErrNotFound] if there is no such message, which what names, and
// otherwise [stored.ErrUnavailable].
func ReadError(err error, what string) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, jetstream.ErrMsgNotFound):
		return fmt.Errorf("%w: %s", stored.ErrNotFound, what)
	case errors.Is(err, stored.ErrUnavailable):
		return err
	}
	return fmt.Errorf("%w: %w", stored.ErrUnavailable, err)
}

// applyTime bounds the wait for a leader to apply what a replica has applied already.
const applyTime = 2 * time.Second

// At reads the message at a sequence. There are three answers: the message, [stored.ErrNotFound] if it was deleted, and
// [stored.ErrUnavailable] if that is not known now. A caller forgets something only after [stored.ErrNotFound].
//
// Any replica may answer with the message, because a message never changes. A server without such a message proves
// nothing: a replica can be behind the leader, and it can be ahead of it, because a leader first counts the copies and
// then applies a message itself.
func (r *Reader) At(ctx context.Context, stream jetstream.Stream, seq uint64) (*jetstream.RawStreamMsg, error) {
	if err := r.await(ctx); err != nil {
		return nil, err
	}
	raw, err := At(ctx, r.js, stream, seq)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return r.AtLeader(ctx, stream.CachedInfo().Config.Name, seq)
	}
	return raw, ReadError(err, "")
}

// AtLeader is [Reader.At] without a replica. Every server applies a stream in the order of its sequences. So a message
// was deleted if one answer shows both that a server has applied its sequence and that it does not have the message.
func (r *Reader) AtLeader(ctx context.Context, stream string, seq uint64) (*jetstream.RawStreamMsg, error) {
	gone := fmt.Errorf("%w: message %d of stream %s was deleted", stored.ErrNotFound, seq, stream)
	for begin := time.Now(); ; {
		raw, err := r.fromLeader(ctx, stream, leaderRequest{Seq: seq, Next: ">"})
		switch {
		case err == nil && raw.Sequence == seq:
			return raw, nil
		case err == nil:
			return nil, gone
		case !errors.Is(err, jetstream.ErrMsgNotFound):
			return nil, ReadError(err, "")
		}
		deleted, err := r.deletedAtEnd(ctx, stream, []uint64{seq})
		if err != nil {
			return nil, ReadError(err, "")
		}
		if len(deleted) > 0 {
			return nil, gone
		}
		if time.Since(begin) >= applyTime {
			return nil, fmt.Errorf("%w: the leader of stream %s has not applied message %d yet", stored.ErrUnavailable, stream, seq)
		}
		if err := watch.Sleep(ctx, RetryPause); err != nil {
			return nil, ReadError(err, "")
		}
	}
}

// Gone returns those of some sequences whose messages were deleted, in ascending order, as far as the leader shows it. It ends at the
// first message that is stored, so each request but the last finds at least one that is gone.
func (r *Reader) Gone(ctx context.Context, stream string, seqs []uint64) (gone []uint64, err error) {
	seqs = slices.Compact(slices.Sorted(slices.Values(seqs)))
	for len(seqs) > 0 {
		raw, err := r.fromLeader(ctx, stream, leaderRequest{Seq: seqs[0], Next: ">"})
		switch {
		case errors.Is(err, jetstream.ErrMsgNotFound):
			atEnd, err := r.deletedAtEnd(ctx, stream, seqs)
			return append(gone, atEnd...), ReadError(err, "")
		case err != nil:
			return gone, ReadError(err, "")
		}
		n, there := slices.BinarySearch(seqs, raw.Sequence)
		gone = append(gone, seqs[:n]...)
		if there {
			return gone, nil
		}
		seqs = seqs[n:]
	}
	return gone, nil
}

// deletedAtEnd returns those of some sequences of which one answer of the leader shows that their messages were deleted. After them
// nothing is stored. The list of deleted messages can be long, so it is read only if a sequence is within the stream.
func (r *Reader) deletedAtEnd(ctx context.Context, name string, seqs []uint64) ([]uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, AttemptTimeout)
	defer cancel()
	stream, err := r.js.Stream(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("state of stream %s: %w", name, err)
	}
	now := stream.CachedInfo()
	// With one copy there is nothing that could be ahead of it.
	alone := now.Cluster == nil || len(now.Cluster.Replicas) == 0
	within := func(seq uint64) bool { return now.State.FirstSeq <= seq && seq <= now.State.LastSeq }
	if slices.ContainsFunc(seqs, within) {
		if now, err = stream.Info(ctx, jetstream.WithDeletedDetails(true)); err != nil {
			return nil, fmt.Errorf("deleted messages of stream %s: %w", name, err)
		}
	}
	return slices.DeleteFunc(slices.Clone(seqs), func(seq uint64) bool {
		deleted := now.State.FirstSeq > seq || now.State.LastSeq < seq && alone || slices.Contains(now.State.Deleted, seq)
		return !deleted
	}), nil
}

// fromLeader reads from the leader, again while there may be none: then nobody
// answers, or somebody who can only say so.
func (r *Reader) fromLeader(ctx context.Context, stream string, request leaderRequest) (*jetstream.RawStreamMsg, error) {
	ctx, cancel := context.WithTimeout(ctx, CommitTimeout)
	defer cancel()
	var last error // the reason, beside that the time was over
	for {
		if err := r.await(ctx); err != nil {
			return nil, err
		}
		attempt, done := context.WithTimeout(ctx, AttemptTimeout)
		raw, err := ask(attempt, r.js, stream, request)
		done()
		if err == nil || !passes(err) {
			return raw, err
		}
		if last == nil || ctx.Err() == nil {
			last = err
		}
		if watch.Sleep(ctx, RetryPause) != nil {
			return nil, last
		}
	}
}

// passes reports whether a request that failed may succeed in a moment: a leader
// is being elected, or a server is on its way back. Any other answer would be
// given again.
func passes(err error) bool {
	if api, ok := errors.AsType[*jetstream.APIError](err); ok {
		return api.Code == http.StatusServiceUnavailable
	}
	for _, passing := range []error{
		nats.ErrNoResponders, nats.ErrTimeout, context.DeadlineExceeded,
		nats.ErrConnectionReconnecting, nats.ErrDisconnected, nats.ErrReconnectBufExceeded,
	} {
		if errors.Is(err, passing) {
			return true
		}
	}
	return false
}
