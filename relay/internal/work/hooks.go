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

// SetClock sets the wall clock, for tests. What is measured within a process goes by the monotonic clock, which nobody
// can set.
func SetClock(f func() time.Time) { wallClock.Store(&f) }

// wall is the time as it is stored, shown, and compared with what others have stored. It is not for durations within
// the process.
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
