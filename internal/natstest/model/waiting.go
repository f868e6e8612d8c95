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

// pendingHeaders returns the headers of a status with the messages and bytes that a pull did not get.
func pendingHeaders(n, bytes int) []string {
	return []string{headerPendingMsgs, strconv.Itoa(n), headerPendingBytes, strconv.Itoa(bytes)}
}

func (w *waitingPull) pending() []string { return pendingHeaders(w.n, w.bytes) }

// priority returns the pull's priority in a prioritized queue. The lowest comes first.
func (w *waitingPull) priority() int {
	if w.group == nil {
		return math.MaxInt32
	}
	return w.group.Priority
}

// insertByPriority inserts a pull after all others of its priority.
func (c *Consumer) insertByPriority(w *waitingPull) {
	i := slices.IndexFunc(c.waiting, func(other *waitingPull) bool { return other.priority() > w.priority() })
	if i < 0 {
		i = len(c.waiting)
	}
	c.waiting = slices.Insert(c.waiting, i, w)
}

// cycle moves the head of the queue to its end.
func (c *Consumer) cycle() {
	c.waiting = append(c.waiting[1:], c.waiting[0])
}

// take assigns one message to the head of the queue. A pull that wants more moves to the end of the queue, or of its priority, so that pulls
// share the messages.
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
	skip          // not now: move it to the end of the queue
	drop          // ended
)

// nextWaiting returns the pull that gets a message of the given size, or nil. It ends pulls that have expired or cannot be served.
func (c *Consumer) nextWaiting(size int) *waitingPull {
	// As in the server, needPin is computed once. If a pull loses its interest
	// right after it got the pin, the pin is assigned again later.
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

// overflows reports whether an overflow pull must wait. Reaching either threshold is enough to be served.
func (c *Consumer) overflows(w *waitingPull) bool {
	g := w.group
	if c.cfg.PriorityPolicy != jetstream.PriorityPolicyOverflow || g == nil || g.MinPending <= 0 && g.MinAckPending <= 0 {
		return false
	}
	// npc no longer includes the current message.
	enoughPending := g.MinPending > 0 && g.MinPending <= c.npc+1
	enoughAckPending := g.MinAckPending > 0 && g.MinAckPending <= int64(len(c.pending))
	return !enoughPending && !enoughAckPending
}

// fits subtracts the size of a message from a pull's bytes, or ends the pull.
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
		w.n = 1 // this is the last message
	}
	return serve
}

// timeOut sends the 408 of a pull, now or after messages that wait for their quorum.
func (c *Consumer) timeOut(w *waitingPull) {
	if !c.defersEnd(w) {
		c.sendStatus(w.reply, 408, "Request Timeout", w.pending()...)
	}
}

// defersEnd reports whether the end of a pull must wait until its messages have their quorum. The status is then a 408 in any case.
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

// processWaiting processes the queue. It sends heartbeats, and ends pulls that have expired or lost their interest, and no-wait pulls at the
// end of the stream. It returns when it must be called again, and how many messages the remaining pulls want.
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

// ends ends a pull that has expired, or a no-wait pull at the end of the stream.
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
	return false // a one-shot pull waits for its first message
}

func (c *Consumer) sendHeartbeat(reply string) {
	c.sendStatus(reply, 100, "Idle Heartbeat",
		"Nats-Last-Consumer", strconv.FormatUint(c.dseq-1, 10),
		"Nats-Last-Stream", strconv.FormatUint(c.sseq-1, 10))
}
