//go:build !unix

package child

import "os/exec"

// ownGroup leaves the command as it is: here its context ends the command alone,
// and at once.
func ownGroup(cmd *exec.Cmd) *group { return &group{cmd} }

type group struct{ cmd *exec.Cmd }

func (g *group) kill() { _ = g.cmd.Process.Kill() }

func (*group) ended() {}
