//go:build unix

package child

import (
	"syscall"
	"time"
)

// OwnCPU returns the user and system time of this process.
func OwnCPU() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		panic("child: getrusage: " + err.Error()) // only a bad argument can fail it
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
