//go:build unix

package main

import (
	"errors"
	"os"
	"os/exec"
	"sync/atomic"
	"syscall"
	"time"
)

// ownGroup starts the command in a process group of its own. When the command's
// context ends all of the group is told to end, and what is left of it after
// killAfter is killed. The returned function is to be called after the command has
// run; it waits until nothing of a group that was told to end is left.
func ownGroup(cmd *exec.Cmd) (ended func()) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var kill *time.Timer // made before Run returns
	var killed atomic.Bool
	group := 0
	cmd.Cancel = func() error {
		group = -cmd.Process.Pid
		kill = time.AfterFunc(killAfter, func() {
			_ = syscall.Kill(group, syscall.SIGKILL)
			killed.Store(true)
		})
		err := syscall.Kill(group, syscall.SIGTERM)
		if errors.Is(err, syscall.ESRCH) {
			return os.ErrProcessDone
		}
		return err
	}
	return func() {
		if kill == nil {
			return
		}
		defer kill.Stop()
		// What the command started can outlive it, and nobody else waits for that.
		for !killed.Load() && syscall.Kill(group, 0) == nil {
			time.Sleep(groupPoll)
		}
	}
}
