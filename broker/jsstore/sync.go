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
	"sync/atomic"
)

// groupSync makes a stream of an embedded server durable. The server has
// written a message to the last block file of its stream when it acknowledges
// it, but syncs that file every few minutes only, or else for every single
// message. A groupSync syncs it for all callers that have come while the sync
// before was under way: one sync serves as many writes as there are, and a lone
// write waits for its own only. The callers do it themselves, one for the
// others: another goroutine would have to be woken, and wake them.
type groupSync struct {
	dir  string // of the block files
	note syncNote

	turn chan struct{} // full while somebody syncs
	last int           // number of the last block that was synced; who has the turn may use it

	mu     sync.Mutex
	next   *syncRound // of those who wait for a sync that has not begun
	closed bool

	// acked is the highest sequence that the server has acknowledged, and synced
	// one up to which everything is on disk.
	acked, synced atomic.Uint64
}

// syncRound is one sync for all who joined before it began.
type syncRound struct {
	done chan struct{}
	err  error // before done is closed
}

// syncNote is told of each file that was synced, with the size that it had when
// the sync began. It may be nil.
type syncNote func(path string, size int64)

var errSyncClosed = errors.New("the store is closing")

func newGroupSync(storeDir, stream string, note syncNote) *groupSync {
	return &groupSync{
		note: note,
		dir:  filepath.Join(storeDir, "jetstream", "$G", "streams", stream, "msgs"),
		turn: make(chan struct{}, 1),
	}
}

// noteAck remembers that the server has acknowledged a sequence.
func (g *groupSync) noteAck(seq uint64) {
	for {
		old := g.acked.Load()
		if seq <= old || g.acked.CompareAndSwap(old, seq) {
			return
		}
	}
}

// has tells whether a message is on disk for sure.
func (g *groupSync) has(seq uint64) bool { return seq <= g.synced.Load() }

// wait returns once all that was written before the call is on disk.
func (g *groupSync) wait(ctx context.Context) error {
	r, err := g.join(false)
	if err != nil {
		return err
	}
	return g.finish(ctx, r)
}

// join returns the round to wait for, the last one if so told.
func (g *groupSync) join(last bool) (*syncRound, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return nil, errSyncClosed
	}
	g.closed = last
	if g.next == nil {
		g.next = &syncRound{done: make(chan struct{})}
	}
	return g.next, nil
}

// finish waits for a round, or gets the turn and serves it.
func (g *groupSync) finish(ctx context.Context, r *syncRound) error {
	select {
	case g.turn <- struct{}{}:
		g.serve(r)
		<-g.turn
	case <-r.done:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return r.err
}

// serve syncs for a round, unless that was done before the turn came.
func (g *groupSync) serve(r *syncRound) {
	g.mu.Lock()
	mine := g.next == r
	if mine {
		g.next = nil
	}
	g.mu.Unlock()
	if !mine {
		return // who has it unset has closed done before giving the turn away
	}
	acked := g.acked.Load()
	r.err = g.sync()
	if errors.Is(r.err, fs.ErrNotExist) {
		// The server removed a block that had become empty.
		r.err = g.sync()
	}
	if r.err == nil {
		g.synced.Store(acked)
	}
	close(r.done)
}

// close serves who waits, and lets nobody wait again.
func (g *groupSync) close() {
	r, err := g.join(true)
	if err != nil {
		return
	}
	// The callers that wait get the error if there is one.
	_ = g.finish(context.Background(), r)
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
	var size int64
	if note != nil {
		info, statErr := f.Stat()
		if statErr != nil {
			return errors.Join(statErr, f.Close())
		}
		size = info.Size()
	}
	if err = errors.Join(f.Sync(), f.Close()); err == nil && note != nil {
		note(path, size)
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
