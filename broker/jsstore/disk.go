package jsstore

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
)

// disk syncs files and folders.
type disk struct {
	// note is told of each file that was synced, with the size that it had when
	// the sync began. Nil means nobody.
	note func(path string, size int64)
	// fsync takes the place of the file's own Sync where a test has the disk
	// fail. Nil means the file's own.
	fsync func(f *os.File) error
}

// syncFailure says that the system could not bring a file to the disk. It then
// may drop what it had of it in memory and call the next sync of the file a
// success, so nothing can be said of the file any more.
type syncFailure struct {
	path string
	err  error
}

func (e *syncFailure) Error() string {
	return fmt.Sprintf("sync of %s failed: %v: what was written to it may be lost; look at the disk, then restart the broker", e.path, e.err)
}

func (e *syncFailure) Unwrap() error { return e.err }

// tree syncs every file and folder below a folder. The server does not sync what it
// writes when it makes a stream.
func (d disk) tree(dir string) error {
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

// file syncs a file. Unless the error is a *syncFailure, the sync was not begun,
// and nothing is known against the disk.
func (d disk) file(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return unopened(path, err)
	}
	var size int64
	if d.note != nil {
		info, statErr := f.Stat()
		if statErr != nil {
			return errors.Join(statErr, f.Close())
		}
		size = info.Size()
	}
	if err := d.syncAndClose(f); err != nil {
		return err
	}
	if d.note != nil {
		d.note(path, size)
	}
	return nil
}

// folder syncs the names in a folder. Windows has no such thing.
func (d disk) folder(path string) error {
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
		return &syncFailure{path: path, err: err}
	}
	return err
}

func (d disk) syncAndClose(f *os.File) error {
	fsync := d.fsync
	if fsync == nil {
		fsync = (*os.File).Sync
	}
	if err := errors.Join(fsync(f), f.Close()); err != nil {
		return &syncFailure{path: f.Name(), err: err}
	}
	return nil
}
