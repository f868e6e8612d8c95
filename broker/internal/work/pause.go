package work

import (
	"context"
	"errors"
	"time"

	"github.com/jetpull/jetpull/broker/internal/domain"
	"github.com/jetpull/jetpull/internal/watch"
	"github.com/jetpull/jetpull/internal/webhook/breaker"
)

// PauseConsumer pauses a consumer: no callback begins, and workers get no jobs. Callbacks and claims in progress go on. It
// changes nothing if the consumer is paused already.
func (d *Dispatch) PauseConsumer(ctx context.Context, channel, id string) (domain.Consumer, error) {
	return d.setPause(ctx, channel, id, func(c *domain.Consumer) {
		if !c.Paused() {
			c.Pause = domain.Pause{Reason: domain.PausedByOperator, At: time.Now().UTC()}
		}
	})
}

// ResumeConsumer undoes PauseConsumer.
func (d *Dispatch) ResumeConsumer(ctx context.Context, channel, id string) (domain.Consumer, error) {
	return d.setPause(ctx, channel, id, func(c *domain.Consumer) {
		if c.Paused() {
			c.Pause, c.FailingSince = domain.Pause{}, time.Time{}
		}
	})
}

// setPause changes the stored consumer, and repeats that after a conflict.
func (d *Dispatch) setPause(ctx context.Context, channel, id string, change func(*domain.Consumer)) (domain.Consumer, error) {
	for range maxTries {
		c, err := d.Settings.Refresh(ctx, channel, id)
		if err != nil {
			return c, err
		}
		paused := c.Paused()
		change(&c)
		saved, err := d.Settings.Put(ctx, c)
		switch {
		case errors.Is(err, domain.ErrConflict):
			continue
		case err == nil && saved.Paused() && !paused:
			d.notify(EventPaused, saved, saved.Pause.Reason)
		case err == nil && paused && !saved.Paused():
			d.notify(EventResumed, saved, "")
		}
		return saved, err
	}
	return domain.Consumer{}, domain.ErrConflict
}

// Breaker returns the state of a consumer's circuit breaker. It is empty if there is none, or if another node makes the
// callbacks.
func (d *Dispatch) Breaker(c domain.Consumer) breaker.State {
	l := d.lane(c.Number)
	if d.Rules.FailurePercent == 0 || l == nil || !d.Shards.Owns(l.shard) {
		return ""
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.breaker.Current()
}

// openBreakers returns the consumers whose circuit breaker is not closed on this node.
func (d *Dispatch) openBreakers() (consumers []domain.Consumer) {
	if d.Rules.FailurePercent == 0 {
		return nil
	}
	for _, l := range d.lanesOf(anyShard) {
		owned := d.Shards.Owns(l.shard)
		l.mu.Lock()
		if owned && l.breaker.Current() != breaker.Closed {
			consumers = append(consumers, l.consumer)
		}
		l.mu.Unlock()
	}
	return consumers
}

const (
	// failingShare delays the write of FailingSince by a twentieth of the time to the pause, so that a short outage of a receiver
	// causes no write.
	failingShare = 20
	// failingCheck is the longest interval between checks of the consumers whose callbacks fail.
	failingCheck = time.Minute
)

// watchFailing stores since when callbacks fail, and pauses the consumers whose callbacks have failed for the configured time, until
// ctx ends.
func (d *Dispatch) watchFailing(ctx context.Context) {
	if d.Rules.PauseAfter == 0 {
		return
	}
	watch.Every(ctx, min(failingCheck, d.Rules.PauseAfter/failingShare), func() {
		for _, l := range d.lanesOf(anyShard) {
			if c, changed := l.failingNow(); changed && d.Shards.Owns(l.shard) {
				if _, err := d.setPause(ctx, c.Channel, c.ID, func(c *domain.Consumer) { l.noteFailing(c) }); err != nil && ctx.Err() == nil {
					d.Log.Info("for how long callbacks fail is not stored, trying again later", "channel", c.Channel, "consumer", c.ID, "error", err)
				}
			}
		}
	})
}

// failingNow returns the lane's consumer, and whether noteFailing would change it.
func (l *lane) failingNow() (c domain.Consumer, changed bool) {
	l.mu.Lock()
	c = l.consumer
	l.mu.Unlock()
	next := c
	return c, l.noteFailing(&next)
}

// noteFailing sets FailingSince of a consumer, or pauses it, by its last callbacks, and reports whether that is a change. Another
// consumer may have its ID by now.
func (l *lane) noteFailing(c *domain.Consumer) (changed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	after, failing := l.d.Rules.PauseAfter, l.failed.Sub(l.failing)
	switch stored := !c.FailingSince.IsZero(); {
	case c.Paused(), c.Number != l.number:
		return false
	case l.failing.IsZero():
		c.FailingSince = time.Time{}
		return stored
	case failing >= after:
		c.Pause, c.FailingSince = domain.Pause{Reason: domain.PausedFailing, At: time.Now().UTC()}, time.Time{}
		return true
	case !stored && failing >= after/failingShare:
		c.FailingSince = l.failing.UTC()
		return true
	}
	return false
}
