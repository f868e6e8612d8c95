// Package child runs a user's commands for messages and items.
package child

import (
	"errors"
	"os/exec"
	"sync"
	"time"
)

const (
	// killAfter is how long a command may take to end after SIGTERM. It is shorter than the time that handlers get after their context is
	// cancelled: 1 s in Consume, and 0.5 s in the feed's watcher. So no process is left when the message goes back.
	killAfter = 400 * time.Millisecond
	// groupPoll is the interval at which a group that got SIGTERM is checked for remaining processes.
	groupPoll = 5 * time.Millisecond
	// OutputAfter is how long a command's output may stay open after it ends. After that, output of its background processes is lost.
	OutputAfter = 5 * time.Second
)

// running maps each running command to a function that kills it with all processes that it started. mu is held while a command starts, so that
// Leave misses none.
var (
	mu      sync.Mutex
	running = map[*exec.Cmd]func(){}
)

// Run starts a command and waits for it. When the command's context ends, the command and all processes that it started get SIGTERM, and are
// killed if they do not end. If whole is true, Run kills the rest of the command's process group in any case. An interrupt from the keyboard goes
// only to the terminal's foreground group and so does not reach the command, which can finish its work.
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
		err = nil // it exited with 0; a background process that it started keeps its output open
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

// Leave kills all commands, before a process exits at once. It keeps mu locked, so that no other command starts.
func Leave() {
	mu.Lock()
	for _, kill := range running {
		kill()
	}
}

// IsDataErr reports whether a command exited with EX_DATAERR of sysexits.h (65): the input is invalid, so a retry is useless.
func IsDataErr(err error) bool {
	exit, ok := errors.AsType[*exec.ExitError](err)
	return ok && exit.ExitCode() == 65
}
