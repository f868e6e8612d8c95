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
	// roomPause is how often the space is looked at. What is broadcast meanwhile has
	// to fit into the reserve.
	roomPause = 250 * time.Millisecond
	// minReserve and maxReserve bound the part of the disk that messages must leave to
	// claims, deletes and the server's own files, a twentieth.
	minReserve = 64 << 20
	maxReserve = 2 << 30
)

// room knows whether there is space for messages on the embedded server.
type room struct {
	dir  string
	most int64 // bytes that the streams may have; 0: as the disk has room
	used func(ctx context.Context) (int64, error)
	disk func(dir string) (free, all int64, err error)
	log  *slog.Logger
	// mend is called with each look that finds room on the disk.
	mend func(ctx context.Context)

	watch.Condition // the store is full
}

func newRoom(cfg *Config, js jetstream.JetStream, log *slog.Logger) *room {
	return &room{
		dir: cfg.NATS.StoreDir, most: cfg.NATS.StoreMax, disk: diskSpace, log: log,
		used: func(ctx context.Context) (int64, error) {
			u, err := accountUsage(js)(ctx)
			return u.Bytes, err
		},
	}
}

// accountUsage is what the server says of the account.
func accountUsage(js jetstream.JetStream) func(context.Context) (work.Usage, error) {
	return func(ctx context.Context) (work.Usage, error) {
		info, err := js.AccountInfo(ctx)
		if err != nil {
			return work.Usage{}, err
		}
		return work.Usage{Bytes: int64(info.Store), Limit: max(0, info.Limits.MaxStore)}, nil
	}
}

// usage is what the streams take, and at which size there is no room any more.
func (r *room) usage(ctx context.Context) (work.Usage, error) {
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

// reserve is what must be free of a disk.
func reserve(all int64) int64 { return min(max(all/20, minReserve), maxReserve) }

func (r *room) look(ctx context.Context) {
	full, err := r.diskIsFull()
	if err == nil && full == nil {
		// Before the server is asked, which may not run; and a store at its limit is worked empty by a server that does.
		if r.mend != nil {
			r.mend(ctx)
		}
		full, err = r.storeIsFull(ctx)
	}
	if err != nil {
		// What cannot be seen now is seen in a moment; until then it is as it was.
		r.log.Debug("space of the store", "error", err)
		return
	}
	switch begun, ended := r.Set(full); {
	case begun:
		r.log.Warn("broadcasts are refused until there is room; jobs can be worked off", "error", full)
	case ended:
		r.log.Info("the store has room again")
	}
}

func (r *room) storeIsFull(ctx context.Context) (full, err error) {
	if r.most == 0 {
		return nil, nil
	}
	used, err := r.used(ctx)
	if err == nil && used >= r.most {
		full = fmt.Errorf("%w: it has %d bytes, and --store-max is %d: work jobs off, prune, or raise it", domain.ErrStoreFull, used, r.most)
	}
	return full, err
}

func (r *room) diskIsFull() (full, err error) {
	free, all, err := r.disk(r.dir)
	if err != nil {
		return nil, err
	}
	if reserve := reserve(all); free < reserve {
		return fmt.Errorf("%w: the disk has %d bytes free, and %d are in reserve: free some", domain.ErrStoreFull, free, reserve), nil
	}
	return nil, nil
}
