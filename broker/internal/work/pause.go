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
		c, err := d.consumers.RefreshConsumer(ctx, channel, id)
		if err != nil {
			return c, err
		}
		if !change(&c) {
			return c, d.consumers.Kept(ctx, c.Revision)
		}
		saved, err := d.consumers.SaveConsumer(ctx, c)
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

// Breaker is the state of a consumer's circuit breaker, empty if it has none or no node tells it at the moment: it is known on
// the node that makes the consumer's callbacks.
func (d *Dispatch) Breaker(ctx context.Context, c domain.Consumer) breaker.State {
	if d.rules.Breaker.FailurePercent == 0 || c.Type != domain.Push {
		return ""
	}
	if state, here := d.breakerHere(c.Number); here {
		return state
	}
	return d.shards.AskBreaker(ctx, c.Number)
}

func (d *Dispatch) breakerHere(consumer uint32) (state breaker.State, here bool) {
	l := d.lane(consumer)
	if l == nil || !d.shards.Owns(l.shard) {
		return "", false
	}
	if d.rules.Breaker.FailurePercent == 0 {
		return "", true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.breaker.Current(), true
}

// openBreakers are the consumers whose circuit breaker is not closed on this node.
func (d *Dispatch) openBreakers() (consumers []domain.Consumer) {
	if d.rules.Breaker.FailurePercent == 0 {
		return nil
	}
	for _, l := range d.lanesOf(anyShard) {
		owned := d.shards.Owns(l.shard)
		l.mu.Lock()
		if owned && l.breaker.Current() != breaker.Closed {
			consumers = append(consumers, l.consumer)
		}
		l.mu.Unlock()
	}
	return consumers
}

// failing is for how long the callbacks of a consumer have failed, without one that
// succeeded.
type failing struct {
	since  time.Time // of the first, as far as this node knows
	stored bool      // the consumer has it
	busy   bool      // it is written
	healed bool      // a callback has succeeded meanwhile
}

// failingShare has it stored after a twentieth of the time to the pause, so that a receiver which is
// down for a moment costs no write.
const failingShare = 20

// health takes in how a callback ended, and decides what follows for the consumer. For one that was deleted meanwhile nothing
// does: events name it by its ID, which another may have.
func (l *lane) health(c domain.Consumer, turn int, success bool, now time.Time) {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return
	}
	changed := l.breaker.Outcome(l.d.rules.Breaker, turn, success, now)
	state := l.breaker.Current()
	write := l.failingLocked(success, now)
	l.mu.Unlock()
	if changed {
		event := EventOpened
		if state == breaker.Closed {
			event = EventClosed
		}
		l.d.events.tell(event, c, "")
		l.wake()
	}
	if write != nil {
		l.d.calls.Go(func() { l.saveFailing(c, write) })
	}
}

// failingLocked returns the change that is to be made to the consumer, or nil.
func (l *lane) failingLocked(success bool, now time.Time) (write func(*domain.Consumer) bool) {
	after := l.d.rules.PauseAfter
	f := &l.failing
	switch {
	case after == 0 || f.busy:
		f.healed = f.healed || f.busy && success
		return nil
	case success:
		if f.since = (time.Time{}); !f.stored {
			return nil
		}
		write = func(c *domain.Consumer) bool { c.FailingSince = time.Time{}; return true }
	case f.since.IsZero():
		f.since = now
		return nil
	case now.Sub(f.since) >= after:
		write = func(c *domain.Consumer) bool {
			was := c.Paused()
			c.Pause, c.FailingSince = domain.Pause{Reason: domain.PausedFailing, At: now.UTC()}, time.Time{}
			return !was
		}
	case !f.stored && now.Sub(f.since) >= after/failingShare:
		since := f.since
		write = func(c *domain.Consumer) bool { c.FailingSince = since.UTC(); return true }
	default:
		return nil
	}
	f.busy = true
	return write
}

// saveFailing writes a change of the consumer. One that is not written is decided again
// with the next callback.
func (l *lane) saveFailing(c domain.Consumer, change func(*domain.Consumer) bool) {
	ctx, cancel := context.WithTimeout(l.d.run, seedTimeout)
	defer cancel()
	saved, err := l.d.consumers.RefreshConsumer(ctx, c.Channel, c.ID)
	ok := err == nil
	if errors.Is(err, domain.ErrNotFound) {
		err = nil // deleted
	}
	paused := saved.Paused()
	// One that was deleted and made again under its ID is another.
	if ok && saved.Number == c.Number && change(&saved) {
		saved, err = l.d.consumers.SaveConsumer(ctx, saved)
	}
	if err != nil {
		l.d.log.Info("for how long callbacks fail is not stored", "channel", c.Channel, "consumer", c.ID, "error", err)
	} else if !paused && saved.Paused() {
		l.d.events.tell(EventPaused, saved, saved.Pause.Reason)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failing.busy = false
	if err == nil && saved.Paused() {
		l.failing.since = time.Time{}
	}
	if healed := l.failing.healed; healed {
		l.failing.healed = false
		l.failing.stored = l.failing.stored || err == nil && !saved.FailingSince.IsZero() // the news of it may come later
		if again := l.failingLocked(true, time.Now()); again != nil {
			l.d.calls.Go(func() { l.saveFailing(c, again) })
		}
	}
}
