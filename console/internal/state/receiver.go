package state

import (
	"fmt"
	"time"

	"github.com/jetpull/jetpull/console/internal/view"
)

// Receiver is a receiver of the relay, or a consumer of the broker.
type Receiver struct {
	// Noun is the word for a message, and Gone for a message that was given up, such as "dead job".
	Noun, Gone string
	// Known reports whether the system knows the state now.
	Known             bool
	Backlog, InFlight int
	// Failed is the number of messages that were given up, or NotKnown. Seen reports whether somebody has looked at all of them.
	Failed int
	Seen   bool
	// Refused is the number of consecutive failed calls up to now, or NotKnown. Since is when the first of them failed, or zero if that is not known.
	Refused int
	Since   time.Time
	// Disabled and Paused are why nothing is sent, as a sentence without its end. They are empty if they do not apply.
	Disabled, Paused string
	// Breaker is the state of its circuit breaker, in its system's words.
	Breaker string
	// Full is why the window of its rate limit is full, as a sentence without its end. It is empty if the window is not full.
	Full string
}

// refusals is the number of consecutive failed calls from which a receiver is red.
const refusals = 5

// Of returns the state of the receiver.
func (r Receiver) Of() State {
	waiting := waits(uint64(max(0, r.Backlog)), r.Noun)
	since := ""
	if !r.Since.IsZero() {
		since = " None has succeeded since the first failure, " + view.At(r.Since) + "."
	}
	paused := ""
	if r.Paused != "" {
		paused = " " + r.Paused + "."
	}
	switch {
	case r.Disabled != "":
		return State{Red, "disabled", r.Disabled + "; " + waiting + "." + since}
	case r.Refused >= refusals:
		return State{Red, "failing", fmt.Sprintf("Each of the last %d calls failed; %s.", r.Refused, waiting) + since}
	case r.Failed > 0 && !r.Seen:
		return State{Red, r.Gone + "s", view.Count(uint64(r.Failed), r.Gone) + ". Requeue them when the cause is gone." + paused}
	case !r.Known:
		return State{Unknown, "not known", "Its state is not known now."}
	case r.Breaker == "open":
		return State{Amber, "breaker open", "The circuit breaker is open, since calls fail; " + waiting + "." + since}
	case r.Breaker == "half_open", r.Breaker == "half-open": // of the relay and of the broker
		return State{Amber, "probing", "Calls failed, and it is tried whether one succeeds again; " + waiting + "." + since}
	case r.Paused != "":
		return State{Amber, "paused by operator", r.Paused + "; " + waiting + "."}
	case r.Full != "" && r.Backlog > 0:
		return State{Amber, "at its limit", r.Full + "; " + waiting + "."}
	case r.Failed == NotKnown, r.Refused == NotKnown:
		return State{Unknown, "not known", "How many of its " + r.Noun + "s failed is not known now; " + waiting + "."}
	case r.Failed > 0:
		return State{Idle, "looked at", "Somebody has looked at all of " + view.Count(uint64(r.Failed), r.Gone) + "; " + waiting + "."}
	case r.Backlog > 0 || r.InFlight > 0:
		return State{Green, "working", view.CountIs(uint64(max(0, r.InFlight)), r.Noun) + " in flight; " + waiting + "."}
	}
	return State{Idle, "idle", "Nothing waits."}
}

// Feed is a feed, or a partition of it.
type Feed struct {
	Known bool
	// Failed is the number of failed items, and Blocked the number of partitions that they hold.
	Failed, Blocked int
	// Ended is the number of partitions whose lease ended while items wait.
	Ended int
	// Ready is the number of ready items, and Oldest is how long the oldest of them has waited.
	Ready  int
	Oldest time.Duration
}

// slowReady is how long an item may be ready before a feed is amber.
const slowReady = time.Minute

// Of returns the state of the feed.
func (f Feed) Of() State {
	switch {
	case f.Failed > 0:
		return State{Red, "blocked", fmt.Sprintf("%s held by %s, until somebody requeues or skips them.",
			view.CountIs(uint64(max(1, f.Blocked)), "partition"), view.Count(uint64(f.Failed), "failed item"))}
	case f.Ended > 0:
		return State{Red, "lease ended", fmt.Sprintf("The lease of %s ended while items wait: no watcher processes them.",
			view.Count(uint64(f.Ended), "partition"))}
	case !f.Known:
		return State{Unknown, "not known", "The state of the feed is not known now."}
	case f.Ready > 0 && f.Oldest > slowReady:
		return State{Amber, "slow", fmt.Sprintf("%s ready, the oldest for %s.", view.CountIs(uint64(f.Ready), "item"), view.Span(f.Oldest))}
	case f.Ready > 0:
		return State{Green, "working", view.CountIs(uint64(f.Ready), "item") + " ready."}
	}
	return State{Idle, "idle", "No item is ready."}
}
