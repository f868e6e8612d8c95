package journal

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull/broker/internal/domain"
	"github.com/jetpull/jetpull/internal/lifecycle"
)

const (
	// quorumPause and quorumTimeout have a lost quorum known within two seconds.
	quorumPause   = 500 * time.Millisecond
	quorumTimeout = time.Second
)

// Quorum knows whether a majority of the servers that keep the streams is there. A
// leader that lost the others goes on for ten seconds as if nothing was, and takes
// writes that it never confirms, so that its own view of the others is asked for.
type Quorum struct {
	js      jetstream.JetStream
	streams []string
	log     *slog.Logger
	lifecycle.Condition
}

// NewQuorum believes that there is one until Watch has looked.
func NewQuorum(js jetstream.JetStream, log *slog.Logger, streams ...string) *Quorum {
	return &Quorum{js: js, log: log, streams: streams}
}

// Watch looks until run ends, and logs a change once.
func (q *Quorum) Watch(run context.Context) {
	lifecycle.Every(run, quorumPause, func() {
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
		// Asked through another handle: that one's cached state is read elsewhere.
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
	there := 1 // the leader, who answers
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
