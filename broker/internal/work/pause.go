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
func (d *Dispatch) PauseConsumer(ctx context.Context, channel, id, reason string) (domain.Consumer, error) {
	return d.setPause(ctx, channel, id, func(c *domain.Consumer) bool {
		if c.Paused() {
			return false
		}
		c.Pause = domain.Pause{Reason: reason, At: time.Now().UTC()}
		return true
	})
}

// ResumeConsumer undoes PauseConsumer.
func (d *Dispatch) ResumeConsumer(ctx context.Context, channel, id string) (domain.Consumer, error) {
	return d.setPause(ctx, channel, id, func(c *domain.Consumer) bool {
		was := c.Paused()
		c.Pause, c.FailingSince = domain.Pause{}, time.Time{}
		return was
	})
}

// setPause changes the stored consumer, and repeats that after a conflict.
func (d *Dispatch) setPause(ctx context.Context, channel, id string, change func(*domain.Consumer) bool) (domain.Consumer, error) {
	for range maxTries {
		c, err := d.Consumers.RefreshConsumer(ctx, channel, id)
		if err != nil {
			return c, err
		}
		if !change(&c) {
			return c, d.Consumers.AwaitDurable(ctx, c.Revision)
		}
		saved, err := d.Consumers.SaveConsumer(ctx, c)
		if errors.Is(err, domain.ErrConflict) {
			continue
		}
		if err == nil {
			d.notify(pauseEvent(saved), saved, saved.Pause.Reason)
		}
		return saved, err
	}
	return domain.Consumer{}, domain.ErrConflict
}

func pauseEvent(c domain.Consumer) string {
	if c.Paused() {
		return EventPaused
	}
	return EventResumed
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

// failingShare delays the write of FailingSince by a twentieth of the time to the pause, so that a short outage of a receiver
// causes no write.
const failingShare = 20

// failingTimeout bounds that write.
const failingTimeout = 2 * time.Second

// failingIn returns the consumer with FailingSince or a pause set by its last callbacks, and whether that is a change. l.mu is
// held.
func (l *lane) failingIn(c domain.Consumer, now time.Time) (_ domain.Consumer, changed bool) {
	after, failing := l.d.Rules.PauseAfter, now.Sub(l.failing)
	switch stored := !c.FailingSince.IsZero(); {
	case after == 0 || c.Paused():
		return c, false
	case l.failing.IsZero():
		c.FailingSince = time.Time{}
		return c, stored
	case failing >= after:
		c.Pause, c.FailingSince = domain.Pause{Reason: domain.PausedFailing, At: now.UTC()}, time.Time{}
		return c, true
	case !stored && failing >= after/failingShare:
		c.FailingSince = l.failing.UTC()
		return c, true
	}
	return c, false
}

// saveFailing stores the result of failingIn, and repeats that for callbacks that end meanwhile. After an error the next callback
// tries again.
func (l *lane) saveFailing(c domain.Consumer) {
	ctx, cancel := context.WithTimeout(l.d.run, failingTimeout)
	defer cancel()
	for again := true; again; {
		stored, err := l.d.Consumers.RefreshConsumer(ctx, c.Channel, c.ID)
		l.mu.Lock()
		next, changed := l.failingIn(stored, time.Now())
		// A consumer that was deleted and recreated with the same ID has another number.
		again = err == nil && changed && stored.Number == c.Number
		l.saving = again
		l.mu.Unlock()
		if again {
			next, err = l.d.Consumers.SaveConsumer(ctx, next)
		}
		switch {
		case err == nil && again && next.Paused():
			l.d.notify(EventPaused, next, next.Pause.Reason)
		case err == nil, errors.Is(err, domain.ErrNotFound), errors.Is(err, domain.ErrConflict):
		default:
			l.d.Log.Info("for how long callbacks fail is not stored", "channel", c.Channel, "consumer", c.ID, "error", err)
			l.mu.Lock()
			l.saving = false
			l.mu.Unlock()
			return
		}
	}
}
