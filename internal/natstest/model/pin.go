package model

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"github.com/jetpull/jetpull/internal/natstest"
)

// pin is the pin of a priority group: the only client that gets messages. A consumer has one pin, regardless of its groups.
type pin struct {
	id      string
	since   time.Time
	group   string // the group in the advisory when the pin times out
	expires time.Time
}

// checkPin decides whether the pin allows a pull to get a message, and reports whether the pull has just got the pin.
func (c *Consumer) checkPin(w *waitingPull, needPin bool) (v verdict, gotPin bool) {
	id := ""
	if w.group != nil {
		id = w.group.ID
	}
	switch {
	case needPin && id == "":
		c.assignPin(w)
		return serve, true
	case needPin, c.pin.id != "" && id != "" && id != c.pin.id:
		c.sendStatus(w.reply, 423, "Nats-Wrong-Pin-Id", w.pending()...)
		return drop, false
	case c.pin.id != "" && id == "":
		return skip, false
	}
	return serve, false
}

func (c *Consumer) assignPin(w *waitingPull) {
	if w.group == nil || w.group.Group == "" {
		return
	}
	c.pin.id, c.pin.since = nuid.Next(), time.Now()
	w.group.ID = c.pin.id
	c.startPinTimer(w.group.Group)
	c.note(Event{Kind: Pinned, Reply: w.reply, Text: c.pin.id})
	c.advise(natstest.PinnedSubject, natstest.PinnedAdvisory{
		Event:    newEvent(natstest.PinnedType),
		Account:  natstest.GlobalAccount,
		Stream:   c.stream.name,
		Consumer: c.name,
		Group:    w.group.Group,
		PinnedID: c.pin.id,
	})
}

// refreshPin restarts the time of the pin.
func (c *Consumer) refreshPin(group string) { c.startPinTimer(group) }

// startPinTimer starts or restarts the timer of the pin. A running timer keeps its group.
func (c *Consumer) startPinTimer(group string) {
	if c.pin.expires.IsZero() {
		c.pin.group = group
	}
	c.pin.expires = time.Now().Add(c.cfg.PinnedTTL)
}

func (c *Consumer) clearPin() { c.pin = pin{} }

// unpin frees the pin and sends the advisory.
func (c *Consumer) unpin(group, reason string) {
	c.clearPin()
	c.note(Event{Kind: Unpinned, Text: reason})
	c.advise(natstest.UnpinnedSubject, natstest.UnpinnedAdvisory{
		Event:    newEvent(natstest.UnpinnedType),
		Account:  natstest.GlobalAccount,
		Stream:   c.stream.name,
		Consumer: c.name,
		Group:    group,
		Reason:   reason,
	})
	c.signal()
}

func (c *Consumer) pinTimeout() {
	c.pin.expires = time.Time{}
	if c.pin.id != "" {
		c.unpin(c.pin.group, "timeout")
	}
}

func newEvent(kind string) natstest.Event {
	return natstest.Event{Type: kind, ID: nuid.Next(), Time: time.Now().UTC()}
}

// advise publishes an advisory of the consumer.
func (c *Consumer) advise(prefix string, advisory any) {
	body, err := json.Marshal(advisory)
	if err != nil {
		c.model.tb.Errorf("model: advisory %+v: %v", advisory, err)
		return
	}
	c.model.peer.Reply(prefix+"."+c.stream.name+"."+c.name, body)
}

// Unpin frees the pin as an administrator would.
func (c *Consumer) Unpin(group string) {
	c.model.do(func() { c.unpin(group, "admin") })
}

// Pin returns the id of the client that has the pin, or "".
func (c *Consumer) Pin() string {
	c.model.mu.Lock()
	defer c.model.mu.Unlock()
	return c.pin.id
}

// onUnpin handles a client's request to free the pin.
func (m *Model) onUnpin(_ *natstest.Peer, r natstest.Request) {
	m.do(func() {
		tokens := strings.Split(r.Subject, ".")
		s := m.streams[tokens[len(tokens)-2]]
		c := m.find(tokens[len(tokens)-2], tokens[len(tokens)-1])
		var req natstest.UnpinRequest
		switch err := json.Unmarshal(r.Body, &req); {
		case m.down:
			m.peer.NoResponders(r.Reply, r.Subject)
		case m.cfg.Replicas > 1 && c != nil && !c.leads():
			// Only a leader responds.
		case err != nil:
			m.peer.ReplyError(r.Reply, 400, 10025, "invalid JSON: "+err.Error())
		case req.Group == "":
			m.peer.ReplyError(r.Reply, 400, 10025, "invalid JSON: consumer group not specified")
		case s == nil:
			m.peer.ReplyError(r.Reply, 404, jetstream.JSErrCodeStreamNotFound, "stream not found")
		case c == nil:
			m.peer.ReplyError(r.Reply, 404, jetstream.JSErrCodeConsumerNotFound, "consumer not found")
		case !slices.Contains(c.cfg.PriorityGroups, req.Group):
			m.peer.ReplyError(r.Reply, 400, 10160, "Provided priority group does not exist for this consumer")
		default:
			c.unpin(req.Group, "admin")
			m.peer.ReplyJSON(r.Reply, natstest.UnpinResponse{Type: natstest.UnpinResponseType})
		}
	})
}
