package work

import (
	"context"
	"errors"
	"time"

	"github.com/jetpull/jetpull/broker/internal/domain"
	"github.com/jetpull/jetpull/internal/webhook/breaker"
)

// PauseConsumer has the jobs of a consumer wait: no callback begins, and workers get
// none. What is in progress goes on. It changes nothing if they wait already.
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

// setPause changes a consumer as it is stored, again if another was faster.
func (d *Dispatch) setPause(ctx context.Context, channel, id string, change func(*domain.Consumer) bool) (domain.Consumer, error) {
	for range maxTries {
		c, err := d.Consumers.RefreshConsumer(ctx, channel, id)
		if err != nil {
			return c, err
		}
		if !change(&c) {
			return c, d.Consumers.Kept(ctx, c.Revision)
		}
		saved, err := d.Consumers.SaveConsumer(ctx, c)
		if errors.Is(err, domain.ErrConflict) {
			continue
		}
		if err == nil {
			d.events.tell(pauseEvent(saved), saved, saved.Pause.Reason)
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

// Breaker is the state of a consumer's circuit breaker; empty: it has none, or another node makes the consumer's callbacks.
func (d *Dispatch) Breaker(c domain.Consumer) breaker.State {
	l := d.lane(c.Number)
	if d.Rules.FailurePercent == 0 || l == nil || !d.Shards.Owns(l.shard) {
		return ""
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.breaker.Current()
}

// openBreakers are the consumers whose circuit breaker is not closed on this node.
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

// failingShare has it stored since when callbacks fail after a twentieth of the time to the pause, so that a receiver which is
// down for a moment costs no write.
const failingShare = 20

// failingTimeout bounds the write of it.
const failingTimeout = 2 * time.Second

// failingIn is a consumer with what follows from its last callbacks, if that is a change. l.mu is held.
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

// saveFailing has the consumer say what follows from its last callbacks, also from those that end meanwhile. If that fails, the
// next callback has it tried again.
func (l *lane) saveFailing(c domain.Consumer) {
	ctx, cancel := context.WithTimeout(l.d.run, failingTimeout)
	defer cancel()
	for again := true; again; {
		stored, err := l.d.Consumers.RefreshConsumer(ctx, c.Channel, c.ID)
		l.mu.Lock()
		next, changed := l.failingIn(stored, time.Now())
		// One that was deleted and made again under its ID is another.
		again = err == nil && changed && stored.Number == c.Number
		l.saving = again
		l.mu.Unlock()
		if again {
			next, err = l.d.Consumers.SaveConsumer(ctx, next)
		}
		switch {
		case err == nil && again && next.Paused():
			l.d.events.tell(EventPaused, next, next.Pause.Reason)
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
