package work

import "sync/atomic"

// onCrashpoint is for tests that end the process at a named point; nil: nothing.
var onCrashpoint atomic.Pointer[func(point string)]

// OnCrashpoint sets what is called at each point between a write and a request, for tests.
func OnCrashpoint(f func(point string)) { onCrashpoint.Store(&f) }

func crashpoint(point string) {
	if f := onCrashpoint.Load(); f != nil {
		(*f)(point)
	}
}
