package pgtest

import "syscall"

// endsWithParent makes a program end when the process that started it ends, even if that is killed. The kernel also ends the program if the thread
// that started it ends. Go's threads live as long as their process, unless they run a locked goroutine.
func endsWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGQUIT }
