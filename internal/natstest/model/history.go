package model

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Kind says what happened in an event of the history.
type Kind string

// The kinds of events. Those of messages name the stream sequence in Seq.
const (
	Stored     Kind = "stored"      // a message came into a stream
	Duplicate  Kind = "duplicate"   // a message with a known Nats-Msg-Id did not
	Pulled     Kind = "pulled"      // a pull came to the leader
	Unanswered Kind = "no leader"   // a pull or ack found no consumer or leader
	Ended      Kind = "status"      // a status was sent
	Delivered  Kind = "delivered"   // a message was sent and somebody was subscribed
	Unwanted   Kind = "no interest" // a message was sent and nobody was subscribed
	Lost       Kind = "lost"        // a frame was sent and got lost
	Acked      Kind = "acked"       // a message is acked, by itself or by one after it
	Naked      Kind = "nak"         // to be redelivered at once, or after Wait
	Working    Kind = "in progress" // the ack wait begins anew
	Termed     Kind = "term"        // never to be redelivered
	Ignored    Kind = "ignored"     // an ack for a message that is not pending
	Overdue    Kind = "ack wait"    // not acked in time, to be redelivered
	Exceeded   Kind = "max deliver" // delivered as often as it may be, given up
	Pinned     Kind = "pinned"      // a client has the pin, named in Text
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

// Event is one thing that happened in the model.
type Event struct {
	At time.Time
	Kind
	// Stream and Consumer it happened to, where it did.
	Stream, Consumer string
	// Seq is the message's sequence in the stream, DeliverSeq that of its
	// delivery, Count how often it has been delivered.
	Seq, DeliverSeq, Count uint64
	// Reply is the inbox of the pull.
	Reply string
	// Code of a status.
	Code int
	// Text is the status's description, the pull's body, a pin, that of a delivery, a reason.
	Text string
	// Wait is the delay of a nak.
	Wait time.Duration
}

// String is the event on one line.
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

// History is all that happened so far.
func (m *Model) History() []Event {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.history)
}

// Count is how many events of a kind the history has.
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

// Dump is the history as text, one event on a line.
func (m *Model) Dump() string {
	var b strings.Builder
	for _, e := range m.History() {
		b.WriteString(e.String())
		b.WriteByte('\n')
	}
	return b.String()
}

// note adds an event of the consumer.
func (c *Consumer) note(e Event) {
	e.Stream, e.Consumer = c.stream.name, c.name
	c.model.note(e)
}
