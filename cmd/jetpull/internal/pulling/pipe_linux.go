package pulling

import (
	"io"
	"os"
	"syscall"
)

// BoundPipe makes out, if it is a pipe, as small as possible. Data that a reader such as head leaves in the pipe counts as written.
func BoundPipe(out io.Writer) {
	if f, ok := out.(*os.File); ok {
		conn, err := f.SyscallConn()
		if err != nil {
			return
		}
		const setPipeSize = 1031 // F_SETPIPE_SZ; it fails for other files
		_ = conn.Control(func(fd uintptr) { _, _, _ = syscall.Syscall(syscall.SYS_FCNTL, fd, setPipeSize, 4096) })
	}
}
