//go:build !linux

package pgtest

import "syscall"

// endsWithParent does nothing on this system. If the process is killed, the program continues to run.
func endsWithParent(*syscall.SysProcAttr) {}
