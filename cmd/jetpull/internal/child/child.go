// Package child runs the commands that users give jetpull for messages and items.
package child

import (
	"errors"
	"os/exec"
	"sync"
	"time"
)

const (
	// killAfter is how long a command may take to end after SIGTERM. Consume grants handlers a second after their
	// context was cancelled, and the feed's watcher half a second: nothing may be left when the message has gone back.
	killAfter = 400 * time.Millisecond
	// groupPoll is the time between two looks for the rest of a group that got SIGTERM.
	groupPoll = 5 * time.Millisecond
	// OutputAfter is how long the output of a command may stay open after its end. A process that it left in the background writes to nobody then.
	OutputAfter = 5 * time.Second
)

// running are the commands of this process, each with what kills it and all that it started. The lock is held over a start, so
// that Leave misses no command.
var (
	mu      sync.Mutex
	running = map[*exec.Cmd]func(){}
)

// Run starts a command and waits for it. When the command's context ends, the command and all that it started get
// SIGTERM, and are killed if they do not end. With whole, what the command has left in its process group is killed in any case. An interrupt from
// the keyboard, which goes to all of a terminal's foreground group, does not reach it: commands shall end their work first.
func Run(cmd *exec.Cmd, whole bool) error {
	group := ownGroup(cmd)
	cmd.WaitDelay = OutputAfter
	mu.Lock()
	err := start(cmd)
	if err == nil {
		running[cmd] = group.kill
	}
	mu.Unlock()
	if err != nil {
		return err
	}
	err = cmd.Wait()
	if errors.Is(err, exec.ErrWaitDelay) {
		err = nil // it exited with 0; something that it started and left has its output still open
	}
	group.ended()
	if whole {
		group.kill()
	}
	mu.Lock()
	delete(running, cmd)
	mu.Unlock()
	return err
}

// Leave kills all commands, for a process that ends at once. It keeps the lock, so that no other command starts.
func Leave() {
	mu.Lock()
	for _, kill := range running {
		kill()
	}
}

// IsDataErr reports whether a command has ended with EX_DATAERR of sysexits.h: the input is wrong and stays wrong.
func IsDataErr(err error) bool {
	exit, ok := errors.AsType[*exec.ExitError](err)
	return ok && exit.ExitCode() == 65
}
