package natstest

import (
	"slices"
	"sync"
	"time"
)

// opLog records operations. wait blocks on a channel, so that its goroutine is durably blocked in the sense of testing/synctest.
type opLog struct {
	mu      sync.Mutex
	ops     []Op
	changed chan struct{} // closed at the next add; nil if no goroutine waits
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

// wait reports whether the operations met cond within waitTimeout.
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

// describe returns the last operations, one per line, for test output.
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
