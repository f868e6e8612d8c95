//go:build !linux

package pgtest

import "syscall"

// endsWithParent does nothing here. A program outlives a process that is killed.
func endsWithParent(*syscall.SysProcAttr) {}
