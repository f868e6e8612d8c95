//go:build !unix

package natsembed

import (
	"fmt"
	"os"
	"path/filepath"
)

// lockDir only opens the lock file, because this operating system has no advisory
// lock that all file systems support.
func lockDir(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, "jetpull.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("natsembed: lock the store: %w", err)
	}
	return f, nil
}

func unlockDir(f *os.File) { _ = f.Close() }
