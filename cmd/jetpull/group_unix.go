//go:build unix

package main

import (
	"os/exec"
	"syscall"
)

// ownGroup starts the command in a process group of its own, and ends all of
// the group when the command's context ends.
func ownGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
}
