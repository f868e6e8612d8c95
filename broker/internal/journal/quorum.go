package journal

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull/broker/internal/domain"
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
	lost    atomic.Pointer[error]
}

// NewQuorum believes that there is one until Watch has looked.
func NewQuorum(js jetstream.JetStream, log *slog.Logger, streams ...string) *Quorum {
	return &Quorum{js: js, log: log, streams: streams}
}

// Err is that the quorum is lost, or nil.
func (q *Quorum) Err() error {
	if lost := q.lost.Load(); lost != nil {
		return *lost
	}
	return nil
}

// Watch looks until run ends, and logs a change once.
func (q *Quorum) Watch(run context.Context) {
	ticker := time.NewTicker(quorumPause)
	defer ticker.Stop()
	for {
		err := q.ask(run)
		if run.Err() != nil {
			return
		}
		switch was := q.Err(); {
		case err != nil:
			q.lost.Store(&err)
			if was == nil {
				q.log.Warn("nothing can be written: the store has no quorum", "error", err)
			}
		case was != nil:
			q.lost.Store(nil)
			q.log.Info("the store has a quorum again")
		}
		select {
		case <-ticker.C:
		case <-run.Done():
			return
		}
	}
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
