//go:build linux || darwin

package node

import "syscall"

// diskSpace is what an unprivileged process can still write to the disk of a folder,
// and the size of the disk.
func diskSpace(dir string) (free, all int64, err error) {
	var s syscall.Statfs_t
	if err := syscall.Statfs(dir, &s); err != nil {
		return 0, 0, err
	}
	return int64(s.Bavail) * int64(s.Bsize), int64(s.Blocks) * int64(s.Bsize), nil
}
