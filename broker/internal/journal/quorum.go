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
	// With quorumPause and quorumTimeout a lost quorum is detected within two seconds.
	quorumPause   = 500 * time.Millisecond
	quorumTimeout = time.Second
	// sameStream is by how much the time at which a stream was created may differ between servers.
	sameStream = time.Second
)

// Quorum tracks whether a majority of the servers that store the streams is available. A leader without followers stays leader
// for ten seconds and accepts writes that it never confirms. So the leader's own view of its followers is queried.
//
// It also notices a stream that somebody has deleted and created again. Its sequences start again at 1, so nothing that this process knows
// of a sequence is true any more: it would take new messages for those that it has read.
type Quorum struct {
	js      jetstream.JetStream
	created map[string]time.Time // by stream, at the start
	alone   bool                 // one server stores the streams, and the connection says whether it is there
	log     *slog.Logger
	watch.Condition
}

// errReplaced says that a stream is not the one that this process has opened.
var errReplaced = errors.New("was deleted and created again")

// Replaced returns errReplaced if a stream is another one, or nil.
func (q *Quorum) Replaced() error {
	if err := q.Err(); errors.Is(err, errReplaced) {
		return err
	}
	return nil
}

// Watch checks until run ends, and logs each change once.
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
		// A new handle is used, because the cached state of the other one is read concurrently.
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
