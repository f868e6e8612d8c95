package natsembed

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
)

// disk syncs the files of a store.
//
// It never repeats a failed sync: the next sync of the same file would succeed without the data that the system has dropped. So all later
// syncs return the first failure, until the process is restarted.
type disk struct {
	fsync func(f *os.File) error
	log   *slog.Logger

	mu     sync.Mutex
	failed error // of the first sync that failed
}

// failure says that the system could not write a file to disk. After that the system may drop the unwritten data from memory and
// report success for the next sync. So the state of the file is unknown.
type failure struct {
	path string
	err  error
}

func (e *failure) Error() string {
	return fmt.Sprintf("sync of %s failed: %v: what was written to it may be lost; look at the disk, then restart the process", e.path, e.err)
}

func (e *failure) Unwrap() error { return e.err }

func (d *disk) failure() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.failed
}

// fail remembers the first failed sync. Other errors say nothing about the disk.
func (d *disk) fail(err error, stream string) {
	broken, ok := errors.AsType[*failure](err)
	d.mu.Lock()
	first := ok && d.failed == nil
	if first {
		d.failed = broken
	}
	d.mu.Unlock()
	if first {
		d.log.Error("the disk failed: nothing that is written from now on is confirmed", "stream", stream, "error", broken)
	}
}

// stream syncs every file and folder of a stream but its consumers, and the folders above it up to the one that contains the store.
// The server does not sync the files that it creates for a new stream.
func (d *disk) stream(storeDir, dir string) error {
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
		case entry.IsDir() && path != dir && entry.Name() != blocksFolder: // consumers, and remains of a purge
			return fs.SkipDir
		case entry.IsDir():
			err = d.folder(path)
		case entry.Type().IsRegular():
			err = d.file(path)
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil // the server has removed it
		}
		return err
	})
	for top := filepath.Dir(storeDir); err == nil && len(dir) > len(top); {
		dir = filepath.Dir(dir)
		if err = d.folder(dir); errors.Is(err, fs.ErrPermission) && dir == top {
			return nil // the folder that contains the store may not be readable
		}
	}
	return err
}

// file syncs a file. An error other than a *failure means that the sync did not begin, and says nothing about the disk.
func (d *disk) file(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return unopened(path, err)
	}
	return d.syncAndClose(f)
}

// folder syncs the names in a folder. Windows has no such operation.
func (d *disk) folder(path string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	f, err := os.Open(path)
	if err != nil {
		return unopened(path, err)
	}
	return d.syncAndClose(f)
}

// unopened distinguishes a failed disk from passing errors, such as too many open files. A system whose disk fails may remount it
// read-only and drop unwritten data. A sync after it was made writable again would then succeed.
func unopened(path string, err error) error {
	if errors.Is(err, syscall.EIO) || errors.Is(err, syscall.EROFS) {
		return &failure{path: path, err: err}
	}
	return err
}

func (d *disk) syncAndClose(f *os.File) error {
	if err := errors.Join(d.fsync(f), f.Close()); err != nil {
		return &failure{path: f.Name(), err: err}
	}
	return nil
}
