//go:build linux || darwin

package broker

import "syscall"

// diskSpace returns the bytes that an unprivileged process can still write to the disk of a folder, and the size of the disk.
func diskSpace(dir string) (free, all int64, err error) {
	var s syscall.Statfs_t
	if err := syscall.Statfs(dir, &s); err != nil {
		return 0, 0, err
	}
	size := uint64(s.Bsize)
	return int64(s.Bavail * size), int64(s.Blocks * size), nil
}
