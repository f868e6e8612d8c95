package worker

import (
	"sync"
	"time"
)

// ackBatch gathers the acknowledgements of handlers that run at the same time. If each were sent when its handler ends, each
// would cost a write and a wake-up of the server. For a message with a short handler, that is more than all other costs.
type ackBatch[M any] struct {
	ack     func(M) error
	report  func(error)
	sending sync.Mutex // held while acknowledgements are sent, so that close waits for them
	spare   []M        // memory of the last batch; guarded by sending

	mu     sync.Mutex
	due    []M
	timer  *time.Timer
	closed bool
}

const (
	// ackBatchTime and ackBatchMost bound how long an acknowledgement waits, and how many do.
	ackBatchTime = 200 * time.Microsecond
	ackBatchMost = 64
)

func newAckBatch[M any](ack func(M) error, report func(error)) *ackBatch[M] {
	a := &ackBatch[M]{ack: ack, report: report}
	a.timer = time.AfterFunc(time.Hour, a.flush)
	a.timer.Stop()
	return a
}

// add acknowledges m: together with later messages if more are handled, and otherwise at once.
func (a *ackBatch[M]) add(m M, more bool) {
	a.mu.Lock()
	a.due = append(a.due, m)
	wait := more && !a.closed && len(a.due) < ackBatchMost
	if wait && len(a.due) == 1 {
		a.timer.Reset(ackBatchTime)
	}
	a.mu.Unlock()
	if !wait {
		a.flush()
	}
}

// flush sends the acknowledgements that wait.
func (a *ackBatch[M]) flush() {
	a.sending.Lock()
	a.mu.Lock()
	due := a.due
	a.due = a.spare
	a.mu.Unlock()
	var failed []error
	for _, m := range due {
		if err := a.ack(m); err != nil {
			failed = append(failed, err)
		}
	}
	clear(due)
	a.spare = due[:0]
	a.sending.Unlock()
	for _, err := range failed {
		a.report(err)
	}
}

// close sends the acknowledgements that wait. Later ones are sent at once.
func (a *ackBatch[M]) close() {
	a.mu.Lock()
	a.closed = true
	a.mu.Unlock()
	a.timer.Stop()
	a.flush()
}
