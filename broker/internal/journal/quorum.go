package journal

import (
	"context"
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
)

// Quorum tracks whether a majority of the servers that store the streams is available. A leader without followers stays leader
// for ten seconds and accepts writes that it never confirms. So the leader's own view of its followers is queried.
type Quorum struct {
	js      jetstream.JetStream
	streams []string
	log     *slog.Logger
	watch.Condition
}

// Watch checks until run ends, and logs each change once.
func (q *Quorum) Watch(run context.Context) {
	watch.Every(run, quorumPause, func() {
		err := q.ask(run)
		if run.Err() != nil {
			return
		}
		switch lost, again := q.Set(err); {
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
	for _, name := range q.streams {
		// A new handle is used, because the cached state of the other one is read concurrently.
		now, err := q.js.Stream(ctx, name)
		if err != nil {
			return fmt.Errorf("%w: stream %s has no leader: %w", domain.ErrUnavailable, name, err)
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
