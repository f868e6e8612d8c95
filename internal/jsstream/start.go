package jsstream

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull/internal/stored"
	"github.com/jetpull/jetpull/internal/watch"
)

// noPeers is the server's error code for a stream for which there are not enough servers, or not yet.
const noPeers = jetstream.ErrorCode(10005)

// absentTime is how long Insist waits for a server that accepts requests. Servers do so a moment after they accept connections, unless JetStream is
// disabled or the domain does not exist.
const absentTime = 5 * time.Second

// firstAttempt is the timeout of the first attempt at a request. Each further attempt doubles it, up to AttemptTimeout. Two nodes that create a
// stream at the same time often get no answer (server 2.15.2), although it is created in a moment. With a long timeout for each, five streams in
// sequence delayed the start of a fresh cluster by ten seconds.
const firstAttempt = 250 * time.Millisecond

// errBehind reports that a server does not know yet what another has created.
var errBehind = errors.New("the server does not know it yet")

// Insist calls f, a request during the start, until it is answered. Each attempt has its own timeout, because no server answers while a cluster
// starts and has no leader. An earlier call of f may have succeeded without an answer.
func Insist(ctx context.Context, f func(ctx context.Context) error) error {
	begin := time.Now()
	for wait := firstAttempt; ; wait = min(2*wait, AttemptTimeout) {
		attempt, done := context.WithTimeout(ctx, wait)
		err := f(attempt)
		done()
		if err == nil {
			return nil
		}
		api, ok := errors.AsType[*jetstream.APIError](err)
		raced := errors.Is(err, errBehind) || ok && (api.ErrorCode == jetstream.JSErrCodeStreamNameInUse || api.ErrorCode == noPeers)
		absent := errors.Is(err, jetstream.ErrJetStreamNotEnabled) && time.Since(begin) > absentTime
		if absent || !passes(err) && !raced {
			return err
		}
		if ended := watch.Sleep(ctx, RetryPause); ended != nil {
			return fmt.Errorf("%w: %w", ended, err)
		}
	}
}

// Make creates a stream, or updates an existing one. It does not change the limits of an existing stream, which are the operator's. It refuses to
// remove replicas, as a process would that was started without --replicas.
func Make(ctx context.Context, js jetstream.JetStream, c jetstream.StreamConfig) (stream jetstream.Stream, err error) {
	err = Insist(ctx, func(ctx context.Context) (err error) {
		// Look for the stream first: a server of a fresh cluster may never answer a request to create what another has just created.
		stream, err = js.Stream(ctx, c.Name)
		switch {
		case errors.Is(err, jetstream.ErrStreamNotFound):
			if stream, err = js.CreateStream(ctx, c); errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
				return fmt.Errorf("%w: %w", errBehind, err)
			}
			return err
		case errors.Is(err, nats.ErrNoResponders):
			// The domain does not exist. Only the client's create request reports it so.
			return fmt.Errorf("%w: %w", jetstream.ErrJetStreamNotEnabled, err)
		case err != nil:
			return err
		}
		was := stream.CachedInfo().Config
		if was.Replicas > max(1, c.Replicas) {
			return fmt.Errorf("the stream %s has %d replicas and this process is configured with %d: give --replicas %[2]d, or change the streams first "+
				"with `nats stream edit`", c.Name, was.Replicas, max(1, c.Replicas))
		}
		changed := c
		changed.MaxBytes, changed.MaxMsgs, changed.MaxMsgSize = was.MaxBytes, was.MaxMsgs, was.MaxMsgSize
		stream, err = js.UpdateStream(ctx, changed)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("make stream %s: %w", c.Name, err)
	}
	return stream, nil
}

// MakeBucket creates or updates the stream of a key-value bucket with one value per key. c.Name is the name of the bucket. The stream is configured
// as nats.go does, except that c specifies whether a follower may answer reads.
func MakeBucket(ctx context.Context, js jetstream.JetStream, c jetstream.StreamConfig) (kv jetstream.KeyValue, stream jetstream.Stream, err error) {
	bucket := c.Name
	c.Name, c.Subjects = "KV_"+bucket, []string{"$KV." + bucket + ".>"}
	c.MaxMsgsPerSubject, c.AllowRollup, c.DenyDelete = 1, true, true
	c.Discard = jetstream.DiscardNew
	if stream, err = Make(ctx, js, c); err != nil {
		return nil, nil, err
	}
	err = Insist(ctx, func(ctx context.Context) (err error) {
		if kv, err = js.KeyValue(ctx, bucket); errors.Is(err, jetstream.ErrBucketNotFound) {
			return fmt.Errorf("%w: %w", errBehind, err)
		}
		return err
	})
	if err != nil {
		return nil, nil, fmt.Errorf("open bucket %s: %w", bucket, err)
	}
	return kv, stream, nil
}

// InfoOf requests the state of a stream until it gets an answer.
func InfoOf(ctx context.Context, stream jetstream.Stream) (info *jetstream.StreamInfo, err error) {
	err = Insist(ctx, func(ctx context.Context) error {
		info, err = stream.Info(ctx)
		return err
	})
	return info, err
}

// AskState is like [InfoOf], but for at most CommitTimeout. It returns [stored.ErrUnavailable].
func AskState(ctx context.Context, stream jetstream.Stream) (jetstream.StreamState, error) {
	ctx, cancel := context.WithTimeout(ctx, CommitTimeout)
	defer cancel()
	info, err := InfoOf(ctx, stream)
	if err != nil {
		return jetstream.StreamState{}, fmt.Errorf("%w: state of a stream: %w", stored.ErrUnavailable, err)
	}
	return info.State, nil
}

const (
	// AttemptTimeout is the timeout of one attempt at a request. A leader that steps down does not answer.
	AttemptTimeout = 2 * time.Second
	// CommitTimeout is the timeout of all attempts.
	CommitTimeout = 10 * time.Second
	// RetryPause is the interval between two attempts.
	RetryPause = 50 * time.Millisecond
)
