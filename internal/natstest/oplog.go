package natstest

import (
	"slices"
	"sync"
	"testing"
	"time"
)

// opLog is the operations seen so far. Its wait is on a channel, so that a
// goroutine in it is durably blocked in the sense of testing/synctest.
type opLog struct {
	mu      sync.Mutex
	ops     []Op
	changed chan struct{} // closed at the next add; nil while nobody waits
}

func (l *opLog) add(op Op) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ops = append(l.ops, op)
	if l.changed != nil {
		close(l.changed)
		l.changed = nil
	}
}

func (l *opLog) all() []Op {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.ops)
}

func (l *opLog) reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ops = nil
}

// wait says whether cond became true of the operations within waitTimeout.
func (l *opLog) wait(cond func([]Op) bool) bool {
	timeout := time.NewTimer(waitTimeout)
	defer timeout.Stop()
	for {
		l.mu.Lock()
		if l.changed == nil {
			l.changed = make(chan struct{})
		}
		changed, ops := l.changed, slices.Clone(l.ops)
		l.mu.Unlock()
		if cond(ops) {
			return true
		}
		select {
		case <-changed:
		case <-timeout.C:
			return false
		}
	}
}

// describe is the last operations, one on a line, for messages of tests.
func describe(ops []Op) string {
	const most = 40
	text := ""
	if len(ops) > most {
		text, ops = "  …\n", ops[len(ops)-most:]
	}
	for _, op := range ops {
		text += "  " + op.String() + "\n"
	}
	return text
}

// Recording is what clients have sent through a proxy since its start.
type Recording struct {
	tb  testing.TB // nil for a proxy of ListenProxy
	log opLog
}

// Ops is the operations so far, of each connection in its order.
func (r *Recording) Ops() []Op { return r.log.all() }

// Reset forgets the operations so far.
func (r *Recording) Reset() { r.log.reset() }

// Wait waits until cond is true of the operations so far, and says whether it
// became so within half a minute. If it did not, the test of a NewProxy fails.
func (r *Recording) Wait(cond func([]Op) bool) bool {
	ok := r.log.wait(cond)
	if !ok && r.tb != nil {
		r.tb.Helper()
		r.tb.Fatalf("natstest: the recording waited %s in vain; it has:\n%s", waitTimeout, describe(r.Ops()))
	}
	return ok
}
