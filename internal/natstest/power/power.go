// Package power simulates disks for tests: one that loses all that was not synced when the power fails, one that is slow, and one that fails.
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

// Disk records what is certainly on disk: each file up to its size at its last sync. Its Fsync is for natsembed.Options. The zero value is
// usable.
type Disk struct {
	// Synced is called with each file or folder that was synced, and its size when the sync began, before a caller learns of the sync.
	// Default: nothing.
	Synced func(path string, size int64)
	// Skip leaves out the sync of a file: the caller learns that it was synced, and it was not. It is a planted bug. Default: none is left out.
	Skip func(path string) bool

	mu    sync.Mutex
	files map[string]state
	held  map[string]*hold // by folder
	bad   string           // syncs below this folder fail
	// How many syncs failed, and how many succeeded.
	failed, fileSyncs, folderSyncs int
}

// state is what was synced of a file.
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

// await waits while syncs of the file are held.
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

// Hold blocks the syncs below a folder, as a slow disk does, until release is called. waiting reports whether one has begun.
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

// Fail lets each sync below a folder fail, until Recover.
func (d *Disk) Fail(folder string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.bad = folder
}

// Recover ends Fail.
func (d *Disk) Recover() { d.Fail("") }

// Failed returns how many syncs have failed.
func (d *Disk) Failed() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.failed
}

// Syncs returns how many files and folders were synced.
func (d *Disk) Syncs() (files, folders int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.fileSyncs, d.folderSyncs
}

// Size returns how much of a file was synced, or 0.
func (d *Disk) Size(path string) int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.files[path].size
}

// Clone returns a Disk that stays as this one is now.
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

// Cut copies a store as the worst loss of power would leave it. Files that were never synced are missing, even if they replaced a
// synced one. The others are truncated to their size at the last sync.
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
			continue // of another store
		}
		if err == nil {
			err = CopyPrefix(path, filepath.Join(to, rest), s.size)
		}
		if err != nil && !os.IsNotExist(err) {
			tb.Fatalf("power: cut %s: %v", path, err)
		}
	}
}

// CopyPrefix copies the first bytes of a file to another one, whose folder it creates.
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
