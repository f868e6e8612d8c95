package work

import (
	"context"
	"errors"
	"time"

	"github.com/jetpull/jetpull/broker/internal/domain"
)

const (
	// maxExpiring is how many claims are ended in parallel.
	maxExpiring = 256
	// expirePause is the wait before the next attempt to end a claim.
	expirePause = time.Second
)

func (x *Jobs) expireClaims(ctx context.Context) {
	expiring := make(chan struct{}, maxExpiring)
	for {
		j, ok := x.Index.Queue.Expired(ctx)
		if !ok {
			return
		}
		if !x.Rules.Recovery {
			continue
		}
		if x.Health.Recordable() != nil {
			x.Index.Queue.GiveBackAfter(j, expirePause)
			continue
		}
		select {
		case expiring <- struct{}{}:
		case <-ctx.Done():
			return
		}
		x.running.Go(func() {
			defer func() { <-expiring }()
			x.expire(ctx, j)
		})
	}
}

// expire ends an expired claim. If the store does not accept the record, another attempt follows.
func (x *Jobs) expire(ctx context.Context, j domain.Job) {
	next, changed := domain.Expire(j, x.Now(), x.Rules.MaxRetry)
	if !changed {
		return
	}
	switch _, err := x.Records.PutJob(ctx, next); {
	case err == nil:
		x.Metrics.expiries.WithLabelValues(next.Status.String()).Inc()
		if next.Status == domain.Dead {
			x.died(next, "its claim has ended, and its retries are used up")
		}
	case errors.Is(err, domain.ErrConflict):
	default:
		x.Log.Log(ctx, x.troubleLevel(), "claim that is over could not be ended, trying again", "job", j.ID, "error", err)
		x.Index.Queue.GiveBackAfter(j, expirePause)
	}
}
