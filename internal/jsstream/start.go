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

// noPeers is the server's error code for a stream for which there are not enough
// servers, or not yet.
const noPeers = jetstream.ErrorCode(10005)

// absentTime is for how long no server may take requests: they do so a moment after they take connections, unless
// JetStream is off there or the domain does not exist.
const absentTime = 5 * time.Second

// firstAttempt is how long the first attempt at a request waits for its answer; each further one waits twice as long, up to
// AttemptTimeout. Two nodes that make a stream at the same time often get no answer at all (server 2.15.2), though it is made
// in a moment: with five streams one after the other, a long wait for each kept them from a fresh cluster for ten seconds.
const firstAttempt = 250 * time.Millisecond

// errBehind is the answer of a server that does not know yet what another has made.
var errBehind = errors.New("the server does not know it yet")

// Insist makes a request at the start until it is answered, with a time-out of its
// own: without a leader, while a cluster starts, nobody answers at all. f may have
// done its work when it is called again.
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

// Make makes a stream or adopts the one that is there. It leaves the limits of that one to the operator, and refuses to take
// copies of it away, as a process would that was started without --replicas.
func Make(ctx context.Context, js jetstream.JetStream, c jetstream.StreamConfig) (stream jetstream.Stream, err error) {
	err = Insist(ctx, func(ctx context.Context) (err error) {
		// Not created without a look: a server of a fresh cluster may never answer a request to create what another has just created.
		stream, err = js.Stream(ctx, c.Name)
		switch {
		case errors.Is(err, jetstream.ErrStreamNotFound):
			if stream, err = js.CreateStream(ctx, c); errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
				return fmt.Errorf("%w: %w", errBehind, err)
			}
			return err
		case errors.Is(err, nats.ErrNoResponders):
			// A domain that does not exist, which only the client's create names so.
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

// MakeBucket makes the stream of a key-value bucket with one value for each key, or adopts it. c.Name is the bucket's name.
// The stream has the form that nats.go gives a bucket, but c says whether a follower may answer a read.
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

// InfoOf asks for the state of a stream until it gets an answer.
func InfoOf(ctx context.Context, stream jetstream.Stream) (info *jetstream.StreamInfo, err error) {
	err = Insist(ctx, func(ctx context.Context) error {
		info, err = stream.Info(ctx)
		return err
	})
	return info, err
}

// AskState is [InfoOf] for CommitTimeout at most. Its error is [stored.ErrUnavailable].
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
	// AttemptTimeout bounds the wait for the answer to one attempt at a request. A
	// leader that steps down answers nothing.
	AttemptTimeout = 2 * time.Second
	// CommitTimeout bounds all attempts.
	CommitTimeout = 10 * time.Second
	// RetryPause is between two attempts.
	RetryPause = 50 * time.Millisecond
)
