package pulling

import (
	"io"
	"os"
	"syscall"
)

// BoundPipe makes the pipe that out is as small as it can be: what a reader that ends, such as head, leaves in it counts as written.
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
