package pgtest

import "syscall"

// endsWithParent has a program end when the process that started it does, also when that is killed.
// Threads of Go that run no locked goroutine live as long as their process, as the kernel wants it of the one that starts the program.
func endsWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGQUIT }
