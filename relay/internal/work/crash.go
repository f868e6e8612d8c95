package work

import "sync/atomic"

// onCrashpoint is for tests that end a process at a named point; nil: nothing.
var onCrashpoint atomic.Pointer[func(node, point string)]

// OnCrashpoint sets what is called at each point between a write and a request, for tests. node is the [Workers.Node]
// that has come to it.
func OnCrashpoint(f func(node, point string)) { onCrashpoint.Store(&f) }

func (w *Workers) crashpoint(point string) {
	if f := onCrashpoint.Load(); f != nil {
		(*f)(w.node, point)
	}
}

// Node names these workers, as opposed to those of other processes and of earlier runs of this one.
func (w *Workers) Node() string { return w.node }
