package engine

import (
	"context"
	"time"
)

const (
	// slowAfter is how long a handler runs before it is reported if there is no HandlerTimeout, and slowGrace how long after that otherwise.
	slowAfter, slowGrace = 10 * time.Minute, 10 * time.Second
	// slowEvery is how often the engine looks for such handlers, and slowLogged how many it logs then.
	slowEvery, slowLogged = 10 * time.Second, 10
)

func runAttempt(e *Engine, a *attempt) {
	a.begun, a.report = time.Now(), slowAfter
	if e.HandlerTimeout > 0 {
		a.report = e.HandlerTimeout + slowGrace
	}
	e.running[a] = a.report
	a.item.Attempt++
	a.ctx, a.cancel = context.WithCancelCause(a.h.ctx)
	go worker{e}.run(a)
}

// reportSlow counts the handlers that run for too long, and logs each once, and again when its time has doubled.
func reportSlow(e *Engine, now time.Time) {
	if now.Before(e.timers.slow) {
		return
	}
	e.timers.slow = now.Add(slowEvery)
	var slow []*attempt
	for a, limit := range e.running {
		if now.Sub(a.begun) >= limit && !a.returned.Load() {
			slow = append(slow, a)
		}
	}
	e.tally.Slow.Add(int64(len(slow) - e.slow))
	e.slow = len(slow)
	logged := 0
	for _, a := range slow {
		if took := now.Sub(a.begun); took >= a.report && logged < slowLogged {
			logged++
			a.report = 2 * took
			e.Log.Warn("feed: handler runs for long", "partition", a.item.PartitionID, "item", a.item.ID, "gate", a.item.Gate,
				"for", took.Round(time.Second), "slots", len(slow), "of", e.Concurrency)
		}
	}
}
