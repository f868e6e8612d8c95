package model

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull/internal/natstest"
)

// waitingPull is a pull in the waiting queue.
type waitingPull struct {
	reply     string
	n         int // remaining messages
	delivered int
	bytes     int // remaining bytes; 0 for no limit, or for an exhausted limit
	expires   time.Time
	noWait    bool
	heartbeat time.Duration
	beatAt    time.Time
	group     *natstest.PullRequest // nil for a pull without JSON
}

// onPull handles a pull from the peer.
func (m *Model) onPull(_ *natstest.Peer, p natstest.Pull) {
	m.do(func() {
		c := m.find(p.Stream, p.Consumer)
		if c == nil || !c.leads() {
			m.note(Event{Kind: Unanswered, Stream: p.Stream, Consumer: p.Consumer, Reply: p.Reply, Text: string(p.Body)})
			if p.Reply != "" {
				m.peer.NoResponders(p.Reply, p.Subject)
			}
			return
		}
		// Without a reply subject, there is never interest, so the pull has no effect.
		if p.Reply == "" {
			return
		}
		c.note(Event{Kind: Pulled, Reply: p.Reply, Text: string(p.Body)})
		if needsNewerServer(p.Header) {
			c.sendStatus(p.Reply, 412, "Required Api Level")
			return
		}
		c.pull(p.Reply, p.Body)
	})
}

// find returns a consumer of a stream, or nil.
func (m *Model) find(stream, consumer string) *Consumer {
	s := m.streams[stream]
	if s == nil {
		return nil
	}
	return s.consumers[consumer]
}

func needsNewerServer(header []byte) bool {
	level := headerValue(header, natstest.HeaderRequiredLevel)
	if level == "" {
		return false
	}
	n, err := strconv.Atoi(level)
	return err != nil || n > natstest.ServerAPILevel
}

// parsePull decodes a pull as the server does. A body that is neither JSON nor a number means one message.
func parsePull(reply string, body []byte, now time.Time) (*waitingPull, error) {
	body = bytes.TrimSpace(body)
	w := &waitingPull{reply: reply, n: 1}
	if len(body) == 0 {
		return w, nil
	}
	if body[0] != '{' {
		if n, err := strconv.Atoi(string(body)); err == nil {
			w.n = n
		}
		return w, nil
	}
	// The server's error for invalid JSON names the Go type.
	type JSApiConsumerGetNextRequest natstest.PullRequest
	var req JSApiConsumerGetNextRequest
	if err := json.Unmarshal(body, &req); err != nil {
		return nil, err
	}
	if req.Heartbeat > 0 {
		if req.Heartbeat*2 > req.Expires {
			return nil, errors.New("heartbeat value too large")
		}
		w.beatAt = now.Add(req.Heartbeat)
	}
	if req.Expires != 0 {
		w.expires = now.Add(req.Expires)
	}
	w.n, w.bytes, w.noWait, w.heartbeat = req.Batch, req.MaxBytes, req.NoWait, req.Heartbeat
	w.group = (*natstest.PullRequest)(&req)
	return w, nil
}

// pull handles a pull as the leader does: it refuses it, ends it at once, or queues it.
func (c *Consumer) pull(reply string, body []byte) {
	now := time.Now()
	w, err := parsePull(reply, body, now)
	if err != nil {
		c.sendStatus(reply, 400, fmt.Sprintf("Bad Request - %v", err))
		return
	}
	if text := c.overLimit(w, now); text != "" {
		c.sendStatus(reply, 409, text)
		return
	}
	if code, text := c.checkGroup(w); text != "" {
		c.sendStatus(reply, code, text)
		return
	}
	// A full queue is cleaned up, but at most once a second.
	if len(c.waiting) == c.cfg.MaxWaiting && now.Sub(c.lastScan) > time.Second {
		c.processWaiting(false)
	}
	if w.noWait && c.endsAtOnce(w) {
		return
	}
	if len(c.waiting) == c.cfg.MaxWaiting {
		// A client with heartbeats gets no status. It notices the missing
		// heartbeats, instead of pulling again at once.
		if w.heartbeat == 0 {
			c.sendStatus(reply, 409, "Exceeded MaxWaiting")
		}
		return
	}
	if c.cfg.PriorityPolicy == jetstream.PriorityPolicyPrioritized {
		c.insertByPriority(w)
	} else {
		c.waiting = append(c.waiting, w)
	}
	c.signal()
	c.proposePull(reply)
}

// overLimit returns the limit of the consumer's configuration that a pull exceeds, or "".
func (c *Consumer) overLimit(w *waitingPull, now time.Time) string {
	switch {
	case c.cfg.MaxRequestBatch > 0 && w.n > c.cfg.MaxRequestBatch:
		return fmt.Sprintf("Exceeded MaxRequestBatch of %d", c.cfg.MaxRequestBatch)
	case !w.expires.IsZero() && c.cfg.MaxRequestExpires > 0 && w.expires.After(now.Add(c.cfg.MaxRequestExpires)):
		return fmt.Sprintf("Exceeded MaxRequestExpires of %v", c.cfg.MaxRequestExpires)
	case w.bytes > 0 && c.cfg.MaxRequestMaxBytes > 0 && w.bytes > c.cfg.MaxRequestMaxBytes:
		return fmt.Sprintf("Exceeded MaxRequestMaxBytes of %v", c.cfg.MaxRequestMaxBytes)
	}
	return ""
}

// checkGroup returns a status if a pull's priority group is invalid. A pull without JSON has no group, which is valid.
func (c *Consumer) checkGroup(w *waitingPull) (code int, text string) {
	g, policy := w.group, c.cfg.PriorityPolicy
	if g == nil {
		return 0, ""
	}
	switch {
	case (g.MinPending != 0 || g.MinAckPending != 0) && policy != jetstream.PriorityPolicyOverflow:
		return 400, "Bad Request - Not a Overflow Priority consumer"
	case g.ID != "" && policy != jetstream.PriorityPolicyPinned:
		return 400, "Bad Request - Not a Pinned Client Priority consumer"
	case g.Priority < 0 || g.Priority > 9:
		return 400, "Bad Request - Priority must be between 0 and 9"
	case policy == jetstream.PriorityPolicyNone:
		return 0, ""
	case g.Group == "":
		return 400, "Bad Request - Priority Group missing"
	case !slices.Contains(c.cfg.PriorityGroups, g.Group):
		return 400, "Bad Request - Invalid Priority Group"
	}
	if c.pin.id != "" && g.ID != "" {
		if g.ID != c.pin.id {
			return 423, "Nats-Pin-Id mismatch"
		}
		c.refreshPin(g.Group)
	}
	return 0, ""
}

// endsAtOnce ends a no-wait pull for which there are no messages.
func (c *Consumer) endsAtOnce(w *waitingPull) bool {
	available := c.numPending() + uint64(len(c.redeliver))
	if available == 0 && w.expires.IsZero() {
		c.sendStatus(w.reply, 404, "No Messages")
		return true
	}
	if available > 0 {
		if _, claimed := c.processWaiting(false); available < uint64(claimed) {
			c.sendStatus(w.reply, 408, "Requests Pending")
			return true
		}
	}
	return false
}
