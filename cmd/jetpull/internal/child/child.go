// Package child runs the commands that users give jetpull for messages and items.
package child

import (
	"errors"
	"os/exec"
	"sync"
	"time"
)

const (
	// killAfter is how long a command may take to end once it was told to. It is
	// under the second that Consume, and the half that the feed's watcher, grants
	// handlers whose context was cancelled: nothing may be left when the message
	// has gone back.
	killAfter = 400 * time.Millisecond
	// groupPoll is how often the rest of a group that was told to end is looked for.
	groupPoll = 5 * time.Millisecond
	// OutputAfter is how long the output of a command may stay open after its end.
	OutputAfter = 5 * time.Second
)

// Run starts a command and waits for it. When the command's context ends, the command and all that it started are told
// to end, and killed if they do not. An interrupt from the keyboard, which goes to all of a terminal's foreground
// group, does not reach it: commands shall end their work first.
func Run(cmd *exec.Cmd) error {
	group := ownGroup(cmd)
	cmd.WaitDelay = OutputAfter
	if err := running.start(cmd, group.kill); err != nil {
		return err
	}
	defer running.ended(cmd)
	err := cmd.Wait()
	group.ended()
	return err
}

// exDataErr is the exit code of sysexits.h for input that is wrong and stays wrong.
const exDataErr = 65

// IsDataErr tells whether a command has ended with EX_DATAERR.
func IsDataErr(err error) bool {
	exit, ok := errors.AsType[*exec.ExitError](err)
	return ok && exit.ExitCode() == exDataErr
}

// Leave kills all commands, for a process that ends at once: no other command is started after it.
func Leave() { running.leave() }

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

// leave kills all commands and keeps the lock, so that no other one is started.
func (g *groups) leave() {
	g.mu.Lock()
	for _, kill := range g.kill {
		kill()
	}
}
