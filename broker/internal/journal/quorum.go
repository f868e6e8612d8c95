package journal

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull/broker/internal/domain"
	"github.com/jetpull/jetpull/internal/watch"
)

const (
	// With quorumPause and quorumTimeout, a lost quorum is detected within two seconds.
	quorumPause   = 500 * time.Millisecond
	quorumTimeout = time.Second
	// sameStream is the maximum difference between servers in the time at which a stream was created.
	sameStream = time.Second
)

// Quorum tracks whether a majority of the servers that store the streams is available. A leader without followers stays leader for ten seconds and
// accepts writes that it never confirms. So Quorum queries the leader's own view of its followers.
//
// Quorum also detects a stream that was deleted and recreated. Its sequences start again at 1, so everything that this process knows about sequences
// is wrong: it would confuse new messages with those that it has read.
type Quorum struct {
	js      jetstream.JetStream
	created map[string]time.Time // by stream, at the start
	alone   bool                 // one server stores the streams; the connection shows whether it is available
	log     *slog.Logger
	watch.Condition
}

// errReplaced reports that a stream is not the one that this process opened.
var errReplaced = errors.New("was deleted and created again")

// Replaced returns errReplaced if a stream was replaced, or nil.
func (q *Quorum) Replaced() error {
	if err := q.Err(); errors.Is(err, errReplaced) {
		return err
	}
	return nil
}

// Watch checks the quorum until run ends, and logs each change once.
func (q *Quorum) Watch(run context.Context) {
	watch.Every(run, quorumPause, func() {
		if q.Replaced() != nil {
			return
		}
		err := q.ask(run)
		if run.Err() != nil {
			return
		}
		switch lost, again := q.Set(err); {
		case errors.Is(err, errReplaced):
			q.log.Error("nothing is written or called until this process is restarted", "error", err)
		case lost:
			q.log.Warn("nothing can be written: the store has no quorum", "error", err)
		case again:
			q.log.Info("the store has a quorum again")
		}
	})
}

func (q *Quorum) ask(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, quorumTimeout)
	defer cancel()
	for name, created := range q.created {
		// Use a new handle, because the cached state of the other one is read concurrently.
		now, err := q.js.Stream(ctx, name)
		if q.alone && err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%w: stream %s has no leader: %w", domain.ErrUnavailable, name, err)
		}
		if now.CachedInfo().Created.Sub(created).Abs() > sameStream {
			return fmt.Errorf("%w: stream %s %w: stop all brokers, delete the streams of messages, jobs and attempts, and start again",
				domain.ErrUnavailable, name, errReplaced)
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
	there := 1 // the leader itself
	for _, peer := range cluster.Replicas {
		if !peer.Offline {
			there++
		}
	}
	if all := 1 + len(cluster.Replicas); there <= all/2 {
		return fmt.Errorf("%w: %d of the %d servers of stream %s are there", domain.ErrUnavailable, there, all, name)
	}
	return nil
}
