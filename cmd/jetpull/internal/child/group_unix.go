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

// ownGroup starts the command in a process group of its own. When the command's
// context ends, all of the group gets SIGTERM, and what is left of it after
// killAfter is killed.
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

// ended is called after the command's Wait. It waits until nothing is left of a group that got
// SIGTERM: what the command started can outlive it, and nothing else waits for that.
func (g *group) ended() {
	if g.timer == nil {
		return
	}
	defer g.timer.Stop()
	for !g.killed.Load() && syscall.Kill(-g.cmd.Process.Pid, 0) == nil {
		time.Sleep(groupPoll)
	}
}
