package work

import (
	"context"
	"errors"
	"time"

	"github.com/jetpull/jetpull/broker/internal/domain"
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
		c.Pause = domain.Pause{}
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

// FailingSince returns since when the callbacks of a consumer fail. It is zero if the last one succeeded, or if another node makes them.
func (d *Dispatch) FailingSince(c domain.Consumer) time.Time {
	l := d.lane(c.Number)
	if l == nil || !d.Shards.Owns(l.shard) {
		return time.Time{}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.failing
}

// pauseFailing pauses a consumer whose callbacks have failed for the configured time, unless another one has its ID by now.
func (d *Dispatch) pauseFailing(failing domain.Consumer) {
	_, err := d.setPause(d.work, failing.Channel, failing.ID, func(c *domain.Consumer) {
		if c.Number == failing.Number && !c.Paused() {
			c.Pause = domain.Pause{Reason: domain.PausedFailing, At: time.Now().UTC()}
		}
	})
	if err != nil {
		d.Log.Info("a consumer whose callbacks fail is not paused, trying again after its next callback", "channel", failing.Channel, "consumer", failing.ID, "error", err)
	}
}
