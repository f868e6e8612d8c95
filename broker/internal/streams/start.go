package streams

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull/broker/internal/domain"
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
		raced := ok && (api.ErrorCode == jetstream.JSErrCodeStreamNameInUse || api.ErrorCode == noPeers)
		absent := errors.Is(err, jetstream.ErrJetStreamNotEnabled) && time.Since(begin) > absentTime
		if absent || !passes(err) && !raced {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", context.Cause(ctx), err)
		case <-time.After(retryPause):
		}
	}
}

// MakeStream makes a stream, or changes it to what it is to be.
func MakeStream(ctx context.Context, js jetstream.JetStream, cfg jetstream.StreamConfig) (stream jetstream.Stream, err error) {
	err = Insist(ctx, func(ctx context.Context) error {
		stream, err = js.CreateOrUpdateStream(ctx, cfg)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("make the stream %s: %w", cfg.Name, err)
	}
	return stream, nil
}

// InfoOf asks for the state of a stream until it is told.
func InfoOf(ctx context.Context, stream jetstream.Stream) (info *jetstream.StreamInfo, err error) {
	err = Insist(ctx, func(ctx context.Context) error {
		info, err = stream.Info(ctx)
		return err
	})
	return info, err
}

// AskState asks the leader of a stream for its state, again if there is no leader at the
// moment.
func AskState(ctx context.Context, stream jetstream.Stream) (jetstream.StreamState, error) {
	ctx, cancel := context.WithTimeout(ctx, CommitTimeout)
	defer cancel()
	for {
		attempt, done := context.WithTimeout(ctx, AttemptTimeout)
		info, err := stream.Info(attempt)
		done()
		if err == nil {
			return info.State, nil
		}
		select {
		case <-ctx.Done():
			return jetstream.StreamState{}, fmt.Errorf("%w: state of a stream: %w", domain.ErrUnavailable, err)
		case <-time.After(retryPause):
		}
	}
}
