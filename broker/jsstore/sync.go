package jsstore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
)

// groupSync makes a stream of an embedded server durable. The server has
// written a message to the last block file of its stream when it acknowledges
// it, but syncs that file every few minutes only, or else for every single
// message. A groupSync syncs it for all callers that have come while the sync
// before was under way: one sync serves as many writes as there are, and a lone
// write waits for its own only.
type groupSync struct {
	dir  string // of the block files
	last int    // number of the last block that was synced

	mu      sync.Mutex
	waiting []chan error
	closed  bool
	kick    chan struct{}
	done    chan struct{}
	note    syncNote
}

// syncNote is told of each file that was synced, with the size that it had when
// the sync began. It may be nil.
type syncNote func(path string, size int64)

var errSyncClosed = errors.New("the store is closing")

func newGroupSync(storeDir, stream string, note syncNote) *groupSync {
	g := &groupSync{
		note: note,
		dir:  filepath.Join(storeDir, "jetstream", "$G", "streams", stream, "msgs"),
		kick: make(chan struct{}, 1), done: make(chan struct{}),
	}
	go g.run()
	return g
}

// wait returns once all that was written before the call is on disk.
func (g *groupSync) wait(ctx context.Context) error {
	result := make(chan error, 1)
	g.mu.Lock()
	if g.closed {
		g.mu.Unlock()
		return errSyncClosed
	}
	g.waiting = append(g.waiting, result)
	first := len(g.waiting) == 1
	g.mu.Unlock()
	if first {
		g.kick <- struct{}{} // empty: it is taken before the list is
	}
	select {
	case err := <-result:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// close serves who waits and ends.
func (g *groupSync) close() {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	close(g.kick)
	<-g.done
}

func (g *groupSync) run() {
	defer close(g.done)
	for range g.kick {
		g.mu.Lock()
		waiting := g.waiting
		g.waiting = nil
		g.mu.Unlock()
		err := g.sync()
		if errors.Is(err, fs.ErrNotExist) {
			// The server removed a block that had become empty.
			err = g.sync()
		}
		for _, w := range waiting {
			w <- err
		}
	}
}

func (g *groupSync) block(n int) string { return filepath.Join(g.dir, strconv.Itoa(n)+".blk") }

// sync syncs the last block that was synced before, which may have got more,
// and those that were begun since.
func (g *groupSync) sync() error {
	from := g.last
	if _, err := os.Stat(g.block(from)); from == 0 || errors.Is(err, fs.ErrNotExist) {
		var err error
		if from, err = g.scan(); err != nil {
			return err
		}
	}
	n := from
	for {
		// Looked at before the sync: while a block is the last it can get more
		// after its sync, and then has to be synced again.
		_, err := os.Stat(g.block(n + 1))
		more := err == nil
		if err := syncFile(g.block(n), g.note); err != nil {
			return err
		}
		if !more {
			break
		}
		n++
	}
	if g.last != n {
		// The name of a file that is new is in the folder.
		if err := syncDir(g.dir); err != nil {
			return err
		}
		g.last = n
	}
	return nil
}

// scan finds the first block to sync where nothing is known: all may have to
// be, since an earlier process may not have come to it.
func (g *groupSync) scan() (int, error) {
	entries, err := os.ReadDir(g.dir)
	if err != nil {
		return 0, err
	}
	last := 0
	for _, e := range entries {
		name, ok := strings.CutSuffix(e.Name(), ".blk")
		n, err := strconv.Atoi(name)
		if !ok || err != nil {
			continue
		}
		if n > g.last {
			if err := syncFile(g.block(n), g.note); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return 0, err
			}
		}
		last = max(last, n)
	}
	if last == 0 {
		return 0, fmt.Errorf("no block files in %s: the server keeps its streams elsewhere", g.dir)
	}
	return last, nil
}

// syncTree syncs every file and folder below a folder. The server does not sync
// what it writes when it makes a stream.
func syncTree(dir string, note syncNote) error {
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil // the server removed it meanwhile
		case err != nil:
			return err
		case d.IsDir():
			err = syncDir(path)
		case d.Type().IsRegular():
			err = syncFile(path, note)
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	})
}

func syncFile(path string, note syncNote) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil && note != nil {
		note(path, info.Size())
	}
	return err
}

// syncDir does nothing on Windows, which has no such thing.
func syncDir(path string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
