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
	// Note is called with each file that was synced, and its size when the sync began, before any caller learns of the sync. Default:
	// nothing.
	Note func(path string, size int64)
	// Fsync replaces the file's own Sync, for tests of a failing disk. Nil means the file's own.
	Fsync func(f *os.File) error
}

// Failure says that the system could not write a file to disk. After that the system may drop the unwritten data from memory and
// report success for the next sync. So the state of the file is unknown.
type Failure struct {
	path string
	err  error
}

// Error implements error.
func (e *Failure) Error() string {
	return fmt.Sprintf("sync of %s failed: %v: what was written to it may be lost; look at the disk, then restart the broker", e.path, e.err)
}

// Unwrap returns the system's error.
func (e *Failure) Unwrap() error { return e.err }

// Tree syncs every file and folder below a folder. The server does not sync the files that it creates for a new stream.
func (d Disk) Tree(dir string) error {
	return filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil // the server has removed it
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

// file syncs a file. Any error but a *Failure means that the sync did not begin, and says nothing about the disk.
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

// folder syncs the names in a folder. Windows has no such operation.
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

// unopened distinguishes a failed disk from passing errors, such as too many open files. A system whose disk fails may remount it
// read-only and drop unwritten data. A sync after it was made writable again would then succeed.
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
