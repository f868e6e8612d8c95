// Package jetpulltest provides tools for testing handlers of jetpull.
//
// [NewMsg] creates a message without a server, [Handle] calls a handler with it as Consume would, and [OutcomeOf] returns how the
// message was settled:
//
//	m := jetpulltest.NewMsg("orders.created", []byte(`{"id":1}`))
//	got := jetpulltest.Handle(ctx, handler, m)
//	if got.Verb != jetpulltest.Ack { … }
//
// A [Recorder] records the messages and results of a handler that Consume runs on a server. Package natsembed/embedtest
// starts a server for a test.
package jetpulltest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/internal/testmsg"
	"github.com/jetpull/jetpull/internal/wire"
)

// Option changes the message that [NewMsg] returns.
type Option func(*delivery)

// delivery is the server's data about a message.
type delivery struct {
	stream, consumer string
	sequence         uint64
	delivered        uint64
	stored           time.Time
	pending          uint64
	header           nats.Header
}

// Stream sets the names of the message's stream and consumer. The defaults are STREAM and consumer.
func Stream(stream, consumer string) Option {
	return func(d *delivery) { d.stream, d.consumer = stream, consumer }
}

// Sequence sets the message's sequence in its stream. The default is 1.
func Sequence(n uint64) Option { return func(d *delivery) { d.sequence = n } }

// Delivered sets how often the message has been delivered, this time included. The default is 1.
func Delivered(n uint64) Option { return func(d *delivery) { d.delivered = n } }

// Stored sets the time at which the stream stored the message. The default is the current time.
func Stored(t time.Time) Option { return func(d *delivery) { d.stored = t } }

// Pending sets the number of messages that the consumer has after this one. The default is 0.
func Pending(n uint64) Option { return func(d *delivery) { d.pending = n } }

// Header adds a header. It may be given several times.
func Header(key, value string) Option {
	return func(d *delivery) {
		if d.header == nil {
			d.header = nats.Header{}
		}
		d.header.Add(key, value)
	}
}

// NewMsg returns a message as a consumer delivers it for the first time. It needs no server: acknowledgements are recorded,
// and [OutcomeOf] returns them. AckNext acknowledges the message and returns [jetpull.ErrNoMessages].
func NewMsg(subject string, data []byte, opts ...Option) *jetpull.Msg {
	d := delivery{stream: "STREAM", consumer: "consumer", sequence: 1, delivered: 1, stored: time.Now()}
	for _, o := range opts {
		if o != nil {
			o(&d)
		}
	}
	reply := fmt.Sprintf("%s%s.%s.%d.%d.%d.%d.%d", wire.AckPrefix, d.stream, d.consumer, d.delivered, d.sequence, d.sequence, d.stored.UnixNano(),
		d.pending)
	return testmsg.New(subject, reply, d.header, data, &record{}).(*jetpull.Msg)
}

// Verb is how a message was settled.
type Verb string

// The ways to settle a message.
const (
	Unsettled Verb = ""
	Ack       Verb = "ack"
	Nak       Verb = "nak"
	Term      Verb = "term"
)

// Outcome is how a message was settled.
type Outcome struct {
	Verb Verb
	// Delay is the delay of a Nak. 0 means that the server redelivers the message at once, or that Consume would choose
	// the delay, because the handler's error was not a [jetpull.Retry].
	Delay time.Duration
	// Reason is the reason of a Term, or empty.
	Reason string
	// Confirmed reports whether the Ack waited for the server, as DoubleAck and ConfirmAcks do.
	Confirmed bool
	// InProgress counts the calls of InProgress.
	InProgress int
	// Err is the error that the handler returned, or its panic. Only [Handle] sets it.
	Err error
}

// OutcomeOf returns the current outcome of m. It may be called from any goroutine. It panics if m is not a message of [NewMsg].
func OutcomeOf(m *jetpull.Msg) Outcome {
	r, ok := testmsg.RecorderOf(m).(*record)
	if !ok {
		panic("jetpulltest: OutcomeOf was given a message that NewMsg has not made")
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.outcome
}

// record is the recorder of one message.
type record struct {
	mu      sync.Mutex
	outcome Outcome
}

// Sent records an acknowledgement that would go to the server.
func (r *record) Sent(body []byte, confirmed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	o := &r.outcome
	verb, rest, _ := bytes.Cut(body, []byte(" "))
	switch string(verb) {
	case string(wire.VerbProgress):
		o.InProgress++
	case string(wire.VerbAck):
		o.Verb, o.Confirmed = Ack, confirmed
	case string(wire.VerbTerm):
		o.Verb, o.Reason = Term, strings.TrimSpace(string(rest))
	case string(wire.VerbNak):
		o.Verb = Nak
		var how struct{ Delay time.Duration }
		if json.Unmarshal(rest, &how) == nil {
			o.Delay = how.Delay
		}
	}
}
