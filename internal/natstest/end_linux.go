package natstest

import (
	"os/exec"
	"syscall"
)

// EndWithParent makes a command that is not started yet get a signal when this process ends, even if this process is killed. The kernel also sends
// it if the thread that started the command ends. Go's threads live as long as their process, unless they run a locked goroutine.
func EndWithParent(cmd *exec.Cmd, signal syscall.Signal) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = signal
}
