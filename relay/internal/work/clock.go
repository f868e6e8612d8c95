package work

import (
	"sync/atomic"
	"time"
)

// wallClock is for tests that set the clock; nil: the system's.
var wallClock atomic.Pointer[func() time.Time]

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
