package model

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Kind is the kind of an event in the history.
type Kind string

// The kinds of events. For messages, Seq is the stream sequence.
const (
	Stored     Kind = "stored"      // a stream stored a message
	Duplicate  Kind = "duplicate"   // a stream dropped a message with a known Nats-Msg-Id
	Pulled     Kind = "pulled"      // the leader got a pull
	Unanswered Kind = "no leader"   // a pull or ack found no consumer or leader
	Ended      Kind = "status"      // a status was sent
	Delivered  Kind = "delivered"   // a message was sent to a subscription
	Unwanted   Kind = "no interest" // a message was sent, but there was no subscription
	Lost       Kind = "lost"        // a frame was sent and lost
	Acked      Kind = "acked"       // a message is acked, by its own ack or by a later one
	Naked      Kind = "nak"         // redelivered at once, or after Wait
	Working    Kind = "in progress" // the ack wait restarts
	Termed     Kind = "term"        // never redelivered
	Ignored    Kind = "ignored"     // an ack for a message that is not pending
	Overdue    Kind = "ack wait"    // not acked in time, will be redelivered
	Exceeded   Kind = "max deliver" // given up after the maximum number of deliveries
	Pinned     Kind = "pinned"      // the client with the id Text has the pin
	Unpinned   Kind = "unpinned"    // the pin is free, for the reason in Text
	LeaderLost Kind = "leader lost"
	LeaderNew  Kind = "new leader"
	Created    Kind = "created"
	Deleted    Kind = "deleted"
	Updated    Kind = "updated"
	Reset      Kind = "reset"
	ServerDown Kind = "server down"
	ServerUp   Kind = "server up"
)

// Event is an event in the model.
type Event struct {
	At time.Time
	Kind
	// Stream and Consumer of the event, if any.
	Stream, Consumer string
	// Seq is the message's stream sequence, DeliverSeq the consumer sequence of
	// its delivery, and Count how often it has been delivered.
	Seq, DeliverSeq, Count uint64
	// Reply is the inbox of the pull.
	Reply string
	// Code of a status.
	Code int
	// Text is the description of a status, the body of a pull, the pin of a client or delivery, or a reason.
	Text string
	// Wait is the delay of a nak.
	Wait time.Duration
}

// String returns the event on one line.
func (e Event) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %-11s", e.At.Format("15:04:05.000000"), e.Kind)
	if e.Consumer != "" {
		fmt.Fprintf(&b, " %s/%s", e.Stream, e.Consumer)
	} else if e.Stream != "" {
		fmt.Fprintf(&b, " %s", e.Stream)
	}
	if e.Seq > 0 {
		fmt.Fprintf(&b, " #%d", e.Seq)
	}
	if e.Count > 0 {
		fmt.Fprintf(&b, " delivery %d (%d.)", e.DeliverSeq, e.Count)
	}
	if e.Code > 0 {
		fmt.Fprintf(&b, " %d", e.Code)
	}
	if e.Text != "" {
		fmt.Fprintf(&b, " %s", e.Text)
	}
	if e.Wait > 0 {
		fmt.Fprintf(&b, " in %s", e.Wait)
	}
	if e.Reply != "" {
		fmt.Fprintf(&b, " -> %s", e.Reply)
	}
	return b.String()
}

func (m *Model) note(e Event) {
	e.At = time.Now()
	m.history = append(m.history, e)
}

// History returns all events so far.
func (m *Model) History() []Event {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.history)
}

// Count returns the number of events of a kind.
func (m *Model) Count(kind Kind) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := 0
	for _, e := range m.history {
		if e.Kind == kind {
			n++
		}
	}
	return n
}

// Dump returns the history as text, one event per line.
func (m *Model) Dump() string {
	var b strings.Builder
	for _, e := range m.History() {
		b.WriteString(e.String())
		b.WriteByte('\n')
	}
	return b.String()
}

// note records an event of the consumer.
func (c *Consumer) note(e Event) {
	e.Stream, e.Consumer = c.stream.name, c.name
	c.model.note(e)
}
