package main

import (
	"os/exec"
	"sync"
)

// running are the commands of this process.
var running groups

// groups are commands that run, each with what kills it and all that it started. The
// zero value has none.
type groups struct {
	mu   sync.Mutex
	kill map[*exec.Cmd]func()
}

// start starts a command.
func (g *groups) start(cmd *exec.Cmd, kill func()) error {
	// The lock is held over the start: what is not noted would not be killed.
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := cmd.Start(); err != nil {
		return err
	}
	if g.kill == nil {
		g.kill = map[*exec.Cmd]func(){}
	}
	g.kill[cmd] = kill
	return nil
}

// ended forgets a command that has run.
func (g *groups) ended(cmd *exec.Cmd) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.kill, cmd)
}

// leave kills all commands, for a process that ends at once: it keeps the lock, so that
// no other command is started.
func (g *groups) leave() {
	g.mu.Lock()
	for _, kill := range g.kill {
		kill()
	}
}
