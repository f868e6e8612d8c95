package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
)

// Disk syncs files and folders.
type Disk struct {
	// Note is told of each file that was synced, with the size that it had when
	// the sync began. Nil means nobody.
	Note func(path string, size int64)
	// Fsync takes the place of the file's own Sync where a test has the disk
	// fail. Nil means the file's own.
	Fsync func(f *os.File) error
}

// Failure says that the system could not bring a file to the disk. It then
// may drop what it had of it in memory and call the next sync of the file a
// success, so nothing can be said of the file any more.
type Failure struct {
	path string
	err  error
}

// Error implements error.
func (e *Failure) Error() string {
	return fmt.Sprintf("sync of %s failed: %v: what was written to it may be lost; look at the disk, then restart the broker", e.path, e.err)
}

// Unwrap returns what the system said.
func (e *Failure) Unwrap() error { return e.err }

// Tree syncs every file and folder below a folder. The server does not sync what it
// writes when it makes a stream.
func (d Disk) Tree(dir string) error {
	return filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil // the server removed it meanwhile
		case err != nil:
			return err
		case entry.IsDir():
			err = d.folder(path)
		case entry.Type().IsRegular():
			err = d.file(path)
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	})
}

// file syncs a file. Unless the error is a *Failure, the sync was not begun,
// and nothing is known against the disk.
func (d Disk) file(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return unopened(path, err)
	}
	var size int64
	if d.Note != nil {
		info, statErr := f.Stat()
		if statErr != nil {
			return errors.Join(statErr, f.Close())
		}
		size = info.Size()
	}
	if err := d.syncAndClose(f); err != nil {
		return err
	}
	if d.Note != nil {
		d.Note(path, size)
	}
	return nil
}

// folder syncs the names in a folder. Windows has no such thing.
func (d Disk) folder(path string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	f, err := os.Open(path)
	if err != nil {
		return unopened(path, err)
	}
	return d.syncAndClose(f)
}

// unopened tells a disk that failed from what passes, such as too many open
// files. A system whose disk fails may make it read-only, which drops what was
// not written yet, and a sync after it was made writable again would succeed.
func unopened(path string, err error) error {
	if errors.Is(err, syscall.EIO) || errors.Is(err, syscall.EROFS) {
		return &Failure{path: path, err: err}
	}
	return err
}

func (d Disk) syncAndClose(f *os.File) error {
	fsync := d.Fsync
	if fsync == nil {
		fsync = (*os.File).Sync
	}
	if err := errors.Join(fsync(f), f.Close()); err != nil {
		return &Failure{path: f.Name(), err: err}
	}
	return nil
}
