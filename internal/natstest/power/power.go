// Package power simulates disks for tests: a disk that loses unsynced data when the power fails, a slow disk, and a failing disk.
package power

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// Disk records which data is certainly on disk: each file up to its size at the last sync. Use its Fsync in natsembed.Options. The zero value
// is ready to use.
type Disk struct {
	// Synced is called after each sync of a file or folder, with the size when the sync began, and before the caller's sync returns. It may
	// be nil.
	Synced func(path string, size int64)
	// Skip plants a bug: if it returns true, the file is not synced, but the caller gets no error. nil skips no file.
	Skip func(path string) bool

	mu    sync.Mutex
	files map[string]state
	held  map[string]*hold // by folder
	bad   string           // syncs below this folder fail
	// The numbers of failed and successful syncs.
	failed, fileSyncs, folderSyncs int
}

// state is the synced part of a file.
type state struct {
	size int64
	info os.FileInfo
}

type hold struct {
	entered bool
	release chan struct{}
}

// Fsync syncs a file or a folder.
func (d *Disk) Fsync(f *os.File) error {
	d.await(f.Name())
	d.mu.Lock()
	bad := d.bad != "" && strings.HasPrefix(f.Name(), d.bad)
	if bad {
		d.failed++
	}
	d.mu.Unlock()
	if bad {
		return syscall.EIO
	}
	if d.Skip != nil && d.Skip(f.Name()) {
		return nil
	}
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	d.mu.Lock()
	if d.files == nil {
		d.files = map[string]state{}
	}
	if info.IsDir() {
		d.folderSyncs++
	} else {
		d.fileSyncs++
		d.files[f.Name()] = state{info.Size(), info}
	}
	d.mu.Unlock()
	if d.Synced != nil {
		d.Synced(f.Name(), info.Size())
	}
	return nil
}

// await waits while Hold blocks syncs of the file.
func (d *Disk) await(path string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for folder, h := range d.held {
		if strings.HasPrefix(path, folder) {
			h.entered = true
			d.mu.Unlock()
			<-h.release
			d.mu.Lock()
		}
	}
}

// Hold blocks syncs below a folder, as a slow disk does, until release is called. waiting reports whether a sync has begun.
func (d *Disk) Hold(folder string) (waiting func() bool, release func()) {
	h := &hold{release: make(chan struct{})}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.held == nil {
		d.held = map[string]*hold{}
	}
	d.held[folder] = h
	waiting = func() bool {
		d.mu.Lock()
		defer d.mu.Unlock()
		return h.entered
	}
	return waiting, func() {
		d.mu.Lock()
		delete(d.held, folder)
		d.mu.Unlock()
		close(h.release)
	}
}

// Fail makes each sync below a folder fail, until Recover.
func (d *Disk) Fail(folder string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.bad = folder
}

// Recover ends Fail.
func (d *Disk) Recover() { d.Fail("") }

// Failed returns the number of failed syncs.
func (d *Disk) Failed() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.failed
}

// Syncs returns the numbers of syncs of files and of folders.
func (d *Disk) Syncs() (files, folders int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.fileSyncs, d.folderSyncs
}

// Size returns how many bytes of a file were synced, or 0.
func (d *Disk) Size(path string) int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.files[path].size
}

// Clone returns a copy with the current state.
func (d *Disk) Clone() *Disk {
	d.mu.Lock()
	defer d.mu.Unlock()
	c := &Disk{files: make(map[string]state, len(d.files))}
	for path, s := range d.files {
		c.files[path] = s
	}
	return c
}

// Replaced reports whether a file that was synced has been replaced by another.
func (d *Disk) Replaced() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for path, synced := range d.files {
		if now, err := os.Stat(path); err == nil && !os.SameFile(now, synced.info) {
			return true
		}
	}
	return false
}

// Cut copies a store as the worst power failure would leave it. Files that were never synced are missing, even if they replaced
// synced files. The others are truncated to their size at the last sync.
func (d *Disk) Cut(tb testing.TB, from, to string) {
	tb.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	for path, s := range d.files {
		if now, err := os.Stat(path); err == nil && !os.SameFile(now, s.info) {
			continue
		}
		rest, err := filepath.Rel(from, path)
		if err == nil && !filepath.IsLocal(rest) {
			continue // a file of another store
		}
		if err == nil {
			err = CopyPrefix(path, filepath.Join(to, rest), s.size)
		}
		if err != nil && !os.IsNotExist(err) {
			tb.Fatalf("power: cut %s: %v", path, err)
		}
	}
}

// CopyPrefix copies the first bytes of a file to another file. It creates the folder if necessary.
func CopyPrefix(from, to string, size int64) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		return err
	}
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, io.LimitReader(in, size))
	return errors.Join(err, out.Close())
}

// Blocks returns the folder of a stream's block files in a store.
func Blocks(dir, stream string) string {
	return filepath.Join(dir, "jetstream", "$G", "streams", stream, "msgs")
}
