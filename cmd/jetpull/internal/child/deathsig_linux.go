package child

import (
	"os/exec"
	"runtime"
	"sync"
	"syscall"
)

// starter runs functions on one thread that lives as long as the process. The kernel kills a command when the thread that started it ends.
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

// start starts a command that the kernel kills when this process ends for any reason. It does not kill processes that the command started.
func start(cmd *exec.Cmd) error {
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	result := make(chan error)
	starter() <- func() { result <- cmd.Start() }
	return <-result
}
