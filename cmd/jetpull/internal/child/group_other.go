//go:build !unix

package child

import "os/exec"

// ownGroup does not change the command. On this system, the end of its context kills only the command itself, at once.
func ownGroup(cmd *exec.Cmd) *group { return &group{cmd} }

type group struct{ cmd *exec.Cmd }

func (g *group) kill() { _ = g.cmd.Process.Kill() }

func (*group) ended() {}
