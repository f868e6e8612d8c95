//go:build unix

package measure

import (
	"syscall"
	"time"
)

// processCPU returns the user and system time of this process.
func processCPU() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		panic("measure: getrusage: " + err.Error()) // only a bad argument can fail it
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
