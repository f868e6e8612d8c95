package model

import (
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// Names of the headers of a status that ends a pull before its time.
const (
	headerPendingMsgs  = "Nats-Pending-Messages"
	headerPendingBytes = "Nats-Pending-Bytes"
)

// pendingHeaders is what a status says that a pull did not get.
func pendingHeaders(n, bytes int) []string {
	return []string{headerPendingMsgs, strconv.Itoa(n), headerPendingBytes, strconv.Itoa(bytes)}
}

func (w *waitingPull) pending() []string { return pendingHeaders(w.n, w.bytes) }

// priority is the pull's place in a prioritized queue, lower first.
func (w *waitingPull) priority() int {
	if w.group == nil {
		return math.MaxInt32
	}
	return w.group.Priority
}

// insertByPriority puts a pull behind all of its priority.
func (c *Consumer) insertByPriority(w *waitingPull) {
	i := slices.IndexFunc(c.waiting, func(other *waitingPull) bool { return other.priority() > w.priority() })
	if i < 0 {
		i = len(c.waiting)
	}
	c.waiting = slices.Insert(c.waiting, i, w)
}

// cycle puts the head of the queue to its end.
func (c *Consumer) cycle() {
	c.waiting = append(c.waiting[1:], c.waiting[0])
}

// take gives the head of the queue one message. A pull that wants more goes to
// the end of the queue, or of its priority, so that pulls share the messages.
func (c *Consumer) take() *waitingPull {
	w := c.waiting[0]
	w.delivered++
	w.n--
	if w.n > 0 && len(c.waiting) == 1 {
		return w
	}
	c.waiting = c.waiting[1:]
	if w.n > 0 {
		if c.cfg.PriorityPolicy == jetstream.PriorityPolicyPrioritized {
			c.insertByPriority(w)
		} else {
			c.waiting = append(c.waiting, w)
		}
	}
	return w
}

// dropHead ends the pull at the head of the queue.
func (c *Consumer) dropHead() {
	c.proposePullEnd(c.waiting[0].reply)
	c.waiting = c.waiting[1:]
}

// verdict is the decision about the pull at the head of the queue.
type verdict int

const (
	serve verdict = iota
	skip          // not this one now: to the end of the queue
	drop          // ended
)

// nextWaiting is the pull that gets a message of the given size, or nil. It
// ends pulls that it finds expired or impossible to serve.
func (c *Consumer) nextWaiting(size int) *waitingPull {
	// Like the server, this is looked at once: a pull that loses its interest
	// right after it got the pin leaves it to be assigned anew.
	needPin := c.pin.id == "" && c.cfg.PriorityPolicy == jetstream.PriorityPolicyPinned
	cycled := 0
	for len(c.waiting) > 0 {
		w := c.waiting[0]
		if !w.expires.IsZero() && !time.Now().Before(w.expires) {
			c.timeOut(w)
			c.dropHead()
			continue
		}
		v, gotPin := c.checkPin(w, needPin)
		if v == serve && c.overflows(w) {
			v = skip
		}
		if v == serve && w.bytes > 0 {
			v = c.fits(w, size, gotPin)
		}
		switch v {
		case skip:
			c.cycle()
			if cycled++; cycled >= len(c.waiting) {
				return nil
			}
			continue
		case drop:
			c.dropHead()
			continue
		case serve:
		}
		if c.model.peer.HasInterest(w.reply) {
			return c.take()
		}
		c.dropHead()
	}
	return nil
}

// overflows says whether an overflow pull has to stand by. Either threshold
// is enough to be served.
func (c *Consumer) overflows(w *waitingPull) bool {
	g := w.group
	if c.cfg.PriorityPolicy != jetstream.PriorityPolicyOverflow || g == nil || g.MinPending <= 0 && g.MinAckPending <= 0 {
		return false
	}
	// The message at hand is no longer counted as pending.
	enoughPending := g.MinPending > 0 && g.MinPending <= c.npc+1
	enoughAckPending := g.MinAckPending > 0 && g.MinAckPending <= int64(len(c.pending))
	return !enoughPending && !enoughAckPending
}

// fits takes the size of a message off a pull's bytes, or ends the pull.
func (c *Consumer) fits(w *waitingPull, size int, gotPin bool) verdict {
	if size > w.bytes {
		c.sendStatus(w.reply, 409, "Message Size Exceeds MaxBytes", w.pending()...)
		if gotPin {
			c.clearPin()
		}
		return drop
	}
	w.bytes -= size
	if w.bytes == 0 {
		w.n = 1 // this one and no more
	}
	return serve
}

// timeOut sends the 408 of a pull, now or behind the data it still waits for.
func (c *Consumer) timeOut(w *waitingPull) {
	if !c.defersEnd(w) {
		c.sendStatus(w.reply, 408, "Request Timeout", w.pending()...)
	}
}

// defersEnd says whether the end of a pull has to wait until messages of it
// have their quorum. It then becomes a 408, whatever it was to be.
func (c *Consumer) defersEnd(w *waitingPull) bool {
	if !c.replicated() {
		return false
	}
	open, ok := c.openPulls[w.reply]
	if ok {
		open.n, open.bytes = w.n, w.bytes
	}
	return ok
}

// processWaiting goes through the queue: it ends what has expired, what has no
// interest any more and, at the end of the stream, no-wait pulls, and sends
// heartbeats. It returns when it has to be called again and how many messages
// the pulls that are left want.
func (c *Consumer) processWaiting(endOfStream bool) (next time.Time, claimed int) {
	if len(c.waiting) == 0 {
		return next, 0
	}
	now := time.Now()
	c.lastScan = now
	var left []*waitingPull
	for _, w := range c.waiting {
		if c.ends(w, now, endOfStream) || !c.model.peer.HasInterest(w.reply) {
			c.proposePullEnd(w.reply)
			continue
		}
		left = append(left, w)
		claimed += w.n
		if !w.beatAt.IsZero() {
			if now.After(w.beatAt) {
				c.sendHeartbeat(w.reply)
				w.beatAt = now.Add(w.heartbeat)
			}
			next = earlier(next, w.beatAt)
		}
		next = earlier(next, w.expires)
	}
	c.waiting = left
	return next, claimed
}

// ends ends a pull that has expired or, being no-wait, has got all there is.
func (c *Consumer) ends(w *waitingPull, now time.Time, endOfStream bool) bool {
	expired := !w.expires.IsZero() && now.After(w.expires)
	switch {
	case !expired && (!endOfStream || !w.noWait):
		return false
	case c.defersEnd(w):
		return true
	case expired:
		c.sendStatus(w.reply, 408, "Request Timeout", w.pending()...)
		return true
	case w.expires.IsZero() || w.delivered > 0:
		c.sendStatus(w.reply, 404, "No Messages")
		return true
	}
	return false // a one-shot waits for its first message
}

func (c *Consumer) sendHeartbeat(reply string) {
	c.sendStatus(reply, 100, "Idle Heartbeat",
		"Nats-Last-Consumer", strconv.FormatUint(c.dseq-1, 10),
		"Nats-Last-Stream", strconv.FormatUint(c.sseq-1, 10))
}
