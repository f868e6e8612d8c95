package work

import (
	"context"
	"errors"
	"time"

	"github.com/jetpull/jetpull/broker/internal/domain"
	"github.com/jetpull/jetpull/internal/service/webhook/breaker"
	"github.com/jetpull/jetpull/internal/service/webhook/gate"
)

// SetPause pauses a consumer with a reason, or resumes it if reason is empty. While a consumer is paused, no callback begins, and workers get no
// jobs. Callbacks and claims in progress continue. A consumer that is already paused keeps its reason. If number is not 0 and the consumer has
// another number, SetPause changes nothing.
func (d *Dispatch) SetPause(ctx context.Context, channel, id string, number uint32, reason string) (domain.Consumer, error) {
	for range maxTries {
		c, err := d.Settings.Refresh(ctx, channel, id)
		if err != nil || number != 0 && c.Number != number {
			return c, err
		}
		changes := c.Paused() != (reason != "")
		if changes {
			c.Pause = domain.Pause{Reason: reason}
			if reason != "" {
				c.Pause.At = d.Now()
			}
		}
		saved, err := d.Settings.Put(ctx, c)
		switch {
		case errors.Is(err, domain.ErrConflict):
			continue
		case err == nil && changes && saved.Paused():
			d.notify(EventPaused, saved, reason)
		case err == nil && changes:
			d.notify(EventResumed, saved, "")
		}
		return saved, err
	}
	return domain.Consumer{}, domain.ErrConflict
}

// ReceiverState is the state of a consumer's receiver, as the node that makes the callbacks knows it. On other nodes it is zero.
type ReceiverState struct {
	Breaker      breaker.State `json:",omitempty"` // empty if the broker has none
	FailingSince time.Time     `json:",omitzero"`  // zero if the last callback succeeded
	// WaitingFor is why the next callback waits. WaitingUntil is when the reason ends by itself.
	WaitingFor   gate.Reason `json:",omitempty"`
	WaitingUntil time.Time   `json:",omitzero"`
}

// State returns the state of a consumer's receiver. Its times are times of the store's clock.
func (d *Dispatch) State(c domain.Consumer) (s ReceiverState) {
	l := d.lane(c.Number)
	if l == nil || !d.Shards.Owns(l.shard) {
		return s
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	config, now, stored := l.configLocked(true, d.Health.Recordable() != nil), time.Now(), d.Now()
	wait := l.gate.Next(config, now)
	if s.WaitingFor = wait.For; !wait.Until.IsZero() {
		s.WaitingUntil = stored.Add(wait.Until.Sub(now))
	}
	if d.Rules.FailurePercent > 0 {
		s.Breaker = l.gate.State(config, now).Breaker
	}
	if !l.failing.IsZero() {
		s.FailingSince = stored.Add(l.failing.Sub(now))
	}
	return s
}

// pauseFailing pauses a consumer whose callbacks have failed for the configured time, unless another consumer has its ID by now.
func (d *Dispatch) pauseFailing(failing domain.Consumer) {
	_, err := d.SetPause(d.work, failing.Channel, failing.ID, failing.Number, domain.PausedFailing)
	if err != nil {
		d.Log.Info("a consumer whose callbacks fail is not paused, trying again after its next callback", "channel", failing.Channel, "consumer",
			failing.ID, "error", err)
	}
}

// The events about which operators are notified.
const (
	EventPaused  = "consumer paused"
	EventResumed = "consumer resumed"
	EventOpened  = "circuit breaker opened"
	EventClosed  = "circuit breaker closed"
)

// operatorEvent is the body of a request to the operator's URL.
type operatorEvent struct {
	Event    string
	Channel  string
	Consumer string
	Reason   string `json:",omitempty"`
	At       time.Time
}

// notify reports a change to operators in the log, in the metrics, and at the configured URL. It does not block.
func (c *core) notify(event string, k domain.Consumer, reason string) {
	c.Log.Warn("a consumer has changed", "event", event, "channel", k.Channel, "consumer", k.ID, "reason", reason)
	c.Metrics.events.WithLabelValues(event).Inc()
	c.Events.Send(operatorEvent{Event: event, Channel: k.Channel, Consumer: k.ID, Reason: reason, At: c.Now()})
}
