package jsstore

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull/broker"
)

const (
	// quorumPause and quorumTimeout have a lost quorum known within two seconds.
	quorumPause   = 500 * time.Millisecond
	quorumTimeout = time.Second
)

// quorum knows whether a majority of the servers that keep the streams is there. A
// leader that lost the others goes on for ten seconds as if nothing was, and takes
// writes that it never confirms, so that its own view of the others is asked for.
type quorum struct{ lost atomic.Pointer[error] }

func (q *quorum) err() error {
	if lost := q.lost.Load(); lost != nil {
		return *lost
	}
	return nil
}

// watchQuorum looks until run ends, and logs a change once.
func (s *Store) watchQuorum(run context.Context) {
	ticker := time.NewTicker(quorumPause)
	defer ticker.Stop()
	for {
		err := s.askQuorum(run)
		if run.Err() != nil {
			return
		}
		switch was := s.quorum.err(); {
		case err != nil:
			s.quorum.lost.Store(&err)
			if was == nil {
				s.log.Warn("nothing can be written: the store has no quorum", "error", err)
			}
		case was != nil:
			s.quorum.lost.Store(nil)
			s.log.Info("the store has a quorum again")
		}
		select {
		case <-ticker.C:
		case <-run.Done():
			return
		}
	}
}

func (s *Store) askQuorum(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, quorumTimeout)
	defer cancel()
	for _, stream := range []jetstream.Stream{s.messageStream, s.jobStream} {
		name := stream.CachedInfo().Config.Name
		// Asked through another handle: that one's cached state is read elsewhere.
		now, err := s.js.Stream(ctx, name)
		if err != nil {
			return fmt.Errorf("%w: stream %s has no leader: %w", broker.ErrUnavailable, name, err)
		}
		if err := hasQuorum(name, now.CachedInfo().Cluster); err != nil {
			return err
		}
	}
	return nil
}

func hasQuorum(name string, cluster *jetstream.ClusterInfo) error {
	if cluster == nil {
		return nil
	}
	there := 1 // the leader, who answers
	for _, peer := range cluster.Replicas {
		if !peer.Offline {
			there++
		}
	}
	if all := 1 + len(cluster.Replicas); there <= all/2 {
		return fmt.Errorf("%w: %d of the %d servers of stream %s are there", broker.ErrUnavailable, there, all, name)
	}
	return nil
}

// noPeers is the server's error code for a stream for which there are not enough
// servers, or not yet.
const noPeers = jetstream.ErrorCode(10005)

// absentTime is for how long no server may take requests: they do so a moment after they take connections, unless
// JetStream is off there or the domain does not exist.
const absentTime = 5 * time.Second

// insist makes a request at the start until it is answered, with a time-out of its
// own: without a leader, while a cluster starts, nobody answers at all. f may have
// done its work when it is called again.
func insist(ctx context.Context, f func(ctx context.Context) error) error {
	for begin := time.Now(); ; {
		attempt, done := context.WithTimeout(ctx, attemptTimeout)
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
