//go:build unix

package child

import (
	"errors"
	"os"
	"os/exec"
	"sync/atomic"
	"syscall"
	"time"
)

// ownGroup gives the command its own process group. When the command's context ends, the whole group gets SIGTERM. Processes that are left
// after killAfter are killed.
func ownGroup(cmd *exec.Cmd) *group {
	g := &group{cmd: cmd}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = g.end
	return g
}

type group struct {
	cmd    *exec.Cmd
	timer  *time.Timer // set before the command's Wait returns, if it got SIGTERM
	killed atomic.Bool
}

func (g *group) end() error {
	g.timer = time.AfterFunc(killAfter, g.kill)
	err := syscall.Kill(-g.cmd.Process.Pid, syscall.SIGTERM)
	if errors.Is(err, syscall.ESRCH) {
		return os.ErrProcessDone
	}
	return err
}

func (g *group) kill() {
	_ = syscall.Kill(-g.cmd.Process.Pid, syscall.SIGKILL)
	g.killed.Store(true)
}

// ended is called after the command's Wait. If the group got SIGTERM, ended waits until none of its processes is left: they can outlive the
// command, and nothing else waits for them.
func (g *group) ended() {
	if g.timer == nil {
		return
	}
	defer g.timer.Stop()
	for !g.killed.Load() && syscall.Kill(-g.cmd.Process.Pid, 0) == nil {
		time.Sleep(groupPoll)
	}
}
