package child

import (
	"os/exec"
	"runtime"
	"sync"
	"syscall"
)

// starter has commands started by one thread, which lives as long as the process: the kernel kills a command when the thread that started it ends.
var starter = sync.OnceValue(func() chan<- func() {
	calls := make(chan func())
	go func() {
		runtime.LockOSThread()
		for call := range calls {
			call()
		}
	}()
	return calls
})

// start starts a command that is killed when this process ends, however that happens. Processes that it has started are not.
func start(cmd *exec.Cmd) error {
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	result := make(chan error)
	starter() <- func() { result <- cmd.Start() }
	return <-result
}
