//go:build !unix

package node

import "os"

// lockFile only makes the file where there are no locks of this kind.
func lockFile(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o640)
}
