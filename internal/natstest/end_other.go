//go:build !linux

package natstest

import (
	"os/exec"
	"syscall"
)

// EndWithParent does nothing on this system. If this process is killed, the command continues to run.
func EndWithParent(*exec.Cmd, syscall.Signal) {}
