package broker

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull/broker/internal/domain"
	"github.com/jetpull/jetpull/broker/internal/work"
	"github.com/jetpull/jetpull/internal/watch"
)

const (
	// spacePause is the interval between checks of the free space. Messages that arrive in between must fit into the reserve.
	spacePause = 250 * time.Millisecond
	// minReserve and maxReserve bound the reserve: a twentieth of the disk that messages leave to claims, deletes and the
	// server's own files.
	minReserve = 64 << 20
	maxReserve = 2 << 30
)

// spaceMonitor checks whether there is space for messages on the embedded server.
type spaceMonitor struct {
	dir  string
	most int64 // bytes that the streams may take; 0: as much as the disk has
	used func(ctx context.Context) (int64, error)
	disk func(dir string) (free, all int64, err error)
	log  *slog.Logger
	// repair is called with each check that finds space on the disk.
	repair func(ctx context.Context)

	watch.Condition // the store is full
}

func newSpaceMonitor(cfg *Config, js jetstream.JetStream, log *slog.Logger) *spaceMonitor {
	return &spaceMonitor{
		dir: cfg.NATS.StoreDir, most: cfg.NATS.StoreMax, disk: diskSpace, log: log,
		used: func(ctx context.Context) (int64, error) {
			u, err := accountUsage(js)(ctx)
			return u.Bytes, err
		},
	}
}

// accountUsage returns the usage of the account as the server reports it.
func accountUsage(js jetstream.JetStream) func(context.Context) (work.Usage, error) {
	return func(ctx context.Context) (work.Usage, error) {
		info, err := js.AccountInfo(ctx)
		if err != nil {
			return work.Usage{}, err
		}
		return work.Usage{Bytes: int64(info.Store), Limit: max(0, info.Limits.MaxStore)}, nil
	}
}

// usage returns the size of the streams, and the size from which messages are refused.
func (r *spaceMonitor) usage(ctx context.Context) (work.Usage, error) {
	used, err := r.used(ctx)
	if err != nil {
		return work.Usage{}, err
	}
	free, all, err := r.disk(r.dir)
	if err != nil {
		return work.Usage{}, err
	}
	limit := used + free - reserve(all)
	if r.most > 0 {
		limit = min(limit, r.most)
	}
	return work.Usage{Bytes: used, Limit: max(limit, 1)}, nil
}

// reserve returns how much of a disk must stay free.
func reserve(all int64) int64 { return min(max(all/20, minReserve), maxReserve) }

func (r *spaceMonitor) look(ctx context.Context) {
	full, err := r.diskIsFull()
	if err == nil && full == nil {
		// This runs before the query of the server, which may be stopped. It does so below the store's limit too: a running
		// server is needed to empty the store.
		if r.repair != nil {
			r.repair(ctx)
		}
		full, err = r.storeIsFull(ctx)
	}
	if err != nil {
		// On an error the last known state stays until the next check.
		r.log.Debug("space of the store", "error", err)
		return
	}
	switch begun, ended := r.Set(full); {
	case begun:
		r.log.Warn("broadcasts are refused until there is space; jobs can be worked off", "error", full)
	case ended:
		r.log.Info("the store has space again")
	}
}

func (r *spaceMonitor) storeIsFull(ctx context.Context) (full, err error) {
	if r.most == 0 {
		return nil, nil
	}
	used, err := r.used(ctx)
	if err == nil && used >= r.most {
		full = fmt.Errorf("%w: it has %d bytes, and --store-max is %d: work jobs off, prune, or raise it", domain.ErrStoreFull, used, r.most)
	}
	return full, err
}

func (r *spaceMonitor) diskIsFull() (full, err error) {
	free, all, err := r.disk(r.dir)
	if err != nil {
		return nil, err
	}
	if reserve := reserve(all); free < reserve {
		return fmt.Errorf("%w: the disk has %d bytes free, and %d are in reserve: free some", domain.ErrStoreFull, free, reserve), nil
	}
	return nil, nil
}
