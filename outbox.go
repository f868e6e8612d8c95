package jetpull

import (
	"sync"
	"time"
)

// outbox gathers the acknowledgements of handlers that run side by side. Sent one
// by one as the handlers end, each would be a write and a wake-up of the server of
// its own, which costs more than all the rest of a short handler's message.
type outbox struct {
	report  func(error)
	sending sync.Mutex // held while some are sent, so that close waits for them

	mu     sync.Mutex
	due    []*Msg
	spare  []*Msg // the memory of the last ones sent
	timer  *time.Timer
	closed bool
}

const (
	// outboxFor and outboxMost bound how long an acknowledgement waits, and how
	// many do.
	outboxFor  = 200 * time.Microsecond
	outboxMost = 64
)

func newOutbox(report func(error)) *outbox {
	o := &outbox{report: report}
	o.timer = time.AfterFunc(time.Hour, o.flush)
	o.timer.Stop()
	return o
}

// ack acknowledges m: with others to come if there is more to do, or else at
// once.
func (o *outbox) ack(m *Msg, more bool) {
	o.mu.Lock()
	o.due = append(o.due, m)
	wait := more && !o.closed && len(o.due) < outboxMost
	if wait && len(o.due) == 1 {
		o.timer.Reset(outboxFor)
	}
	o.mu.Unlock()
	if !wait {
		o.flush()
	}
}

// flush sends what is due. An error means that the connection is gone for good,
// and the server redelivers the message.
func (o *outbox) flush() {
	o.sending.Lock()
	defer o.sending.Unlock()
	o.mu.Lock()
	due := o.due
	o.due, o.spare = o.spare[:0], nil
	o.mu.Unlock()
	for _, m := range due {
		if err := m.Ack(); err != nil {
			o.report(err)
		}
	}
	clear(due)
	o.mu.Lock()
	o.spare = due[:0]
	o.mu.Unlock()
}

// close sends what is due; what comes later goes at once.
func (o *outbox) close() {
	o.mu.Lock()
	o.closed = true
	o.mu.Unlock()
	o.timer.Stop()
	o.flush()
}
