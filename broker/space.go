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
	// spacePause is the interval between checks of the free space. Messages that arrive between two checks must fit into the reserve.
	spacePause = 250 * time.Millisecond
	// minReserve and maxReserve bound the reserve, a twentieth of the disk. Messages leave it to claims, deletes and the server's own files.
	minReserve = 64 << 20
	maxReserve = 2 << 30
)

// spaceMonitor checks whether the embedded server has space for messages.
type spaceMonitor struct {
	dir  string
	most int64 // maximum bytes in the streams; 0: the size of the disk
	used func(ctx context.Context) (work.Usage, error)
	disk func(dir string) (free, all int64, err error)
	log  *slog.Logger

	watch.Condition // its error is set while the store is full
}

func accountUsage(js jetstream.JetStream) func(context.Context) (work.Usage, error) {
	return func(ctx context.Context) (work.Usage, error) {
		info, err := js.AccountInfo(ctx)
		if err != nil {
			return work.Usage{}, err
		}
		return work.Usage{Bytes: int64(info.Store), Limit: max(0, info.Limits.MaxStore)}, nil
	}
}

// usage returns the size of the streams and the size from which the broker refuses messages, both in bytes.
func (r *spaceMonitor) usage(ctx context.Context) (work.Usage, error) {
	u, err := r.used(ctx)
	if err != nil {
		return u, err
	}
	free, all, err := r.disk(r.dir)
	if err != nil {
		return work.Usage{}, err
	}
	limit := u.Bytes + free - min(max(all/20, minReserve), maxReserve)
	if r.most > 0 {
		limit = min(limit, r.most)
	}
	return work.Usage{Bytes: u.Bytes, Limit: max(limit, 1)}, nil
}

func (r *spaceMonitor) look(ctx context.Context) {
	u, err := r.usage(ctx)
	if err != nil {
		// The last known state applies until the next check.
		r.log.Debug("space of the store", "error", err)
		return
	}
	var full error
	if max(u.Bytes, 1) >= u.Limit {
		full = fmt.Errorf("%w: it has %d bytes, and its limit is %d (--store-max, or the disk less a reserve): work jobs off, prune, free some of the "+
			"disk, or raise the limit", domain.ErrStoreFull, u.Bytes, u.Limit)
	}
	switch begun, ended := r.Set(full); {
	case begun:
		r.log.Warn("broadcasts are refused until there is space; jobs can be worked off", "error", full)
	case ended:
		r.log.Info("the store has space again")
	}
}
