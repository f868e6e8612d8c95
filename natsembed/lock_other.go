//go:build !unix

package natsembed

import (
	"fmt"
	"os"
	"path/filepath"
)

// lockDir opens the lock file only: here the operating system has no advisory
// lock that every file system honours.
func lockDir(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, "jetpull.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("natsembed: lock the store: %w", err)
	}
	return f, nil
}
