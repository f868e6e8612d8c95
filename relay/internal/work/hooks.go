package work

import (
	"sync/atomic"
	"time"
)

// What tests set; nil outside of them.
var (
	wallClock    atomic.Pointer[func() time.Time]
	onCrashpoint atomic.Pointer[func(node, point string)]
)

// SetClock sets the wall clock, for tests.
func SetClock(f func() time.Time) { wallClock.Store(&f) }

// wall is the time that others on the network are told, or tell. What is stored, or compared with what is, goes by
// [store.Store.Now], and what is measured within the process by the monotonic clock.
func wall() time.Time {
	if f := wallClock.Load(); f != nil {
		return (*f)().Round(0).UTC()
	}
	return time.Now().Round(0).UTC()
}

// OnCrashpoint sets what is called at each point between a write and a request, for tests that end a process there. node
// is the [Workers.Node] that has come to it.
func OnCrashpoint(f func(node, point string)) { onCrashpoint.Store(&f) }

func (w *Workers) crashpoint(point string) {
	if f := onCrashpoint.Load(); f != nil {
		(*f)(w.node, point)
	}
}
