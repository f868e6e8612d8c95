package journal

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
)

// Group makes a stream of an embedded server durable. The server acknowledges a message when it has written it to the last block
// file of its stream. It syncs that file only every few minutes, or after every message. A Group syncs the file for all callers
// that have arrived during the previous sync: one sync serves any number of writes, and a lone write waits for its own sync only.
// One of the callers does the sync for the others. A separate goroutine would cost two switches more.
//
// A Group never repeats a failed sync: the next sync of the same file would succeed without the data that the system has dropped.
// So every later caller gets the first failure, until the process is restarted.
type Group struct {
	disk Disk
	log  *slog.Logger

	turn chan struct{} // full during a sync
	// Guarded by turn:
	blocks blockFolder
	last   int                 // number of the last block that was synced
	named  []int               // blocks in the folder when it was synced
	files  map[int]os.FileInfo // of the blocks, at the last listing
	seen   int                 // the listing that files is from

	mu     sync.Mutex
	next   *round // of callers that wait for a sync that has not begun
	closed bool
	failed error // of the first sync that failed

	// acked is the highest sequence that the server has acknowledged. Everything up to synced is on disk.
	acked, synced atomic.Uint64
}

// round is one sync for all callers that joined before it began.
type round struct {
	done chan struct{}
	err  error // set before done is closed
}

// ErrClosed says that a Group was closed before a sync.
var ErrClosed = errors.New("the store is closing")

// NewGroup returns the Group of a stream of the server with the given store folder.
func NewGroup(storeDir, stream string, d Disk, log *slog.Logger) *Group {
	return &Group{
		disk:   d,
		log:    log.With("stream", stream),
		blocks: folderOf(storeDir, stream),
		turn:   make(chan struct{}, 1),
	}
}

// StartAt is called once, before any other method and before everything stored so far, which ends at acked, is synced by other
// means.
func (g *Group) StartAt(acked uint64) {
	g.NoteAck(acked)
	g.synced.Store(acked)
	numbers, err := g.blocks.look()
	if err != nil {
		return // there is no block yet, or the first sync reports the error
	}
	g.named, g.last = numbers, numbers[len(numbers)-1]
	// The first call only records the files and syncs nothing. An error here occurs again in the first sync.
	_, _ = g.syncRewritten(numbers, len(numbers))
}

// NoteAck records that the server has acknowledged a sequence.
func (g *Group) NoteAck(seq uint64) {
	for {
		old := g.acked.Load()
		if seq <= old || g.acked.CompareAndSwap(old, seq) {
			return
		}
	}
}

// Has reports whether a message is certainly on disk.
func (g *Group) Has(seq uint64) bool { return seq <= g.synced.Load() }

// Wait returns once everything written before the call is on disk.
func (g *Group) Wait(ctx context.Context) error {
	r, err := g.join(false)
	if err != nil {
		return err
	}
	return g.finish(ctx, r)
}

// join returns the round to wait for. With last set, it is the final round.
func (g *Group) join(last bool) (*round, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return nil, ErrClosed
	}
	g.closed = last
	if g.failed != nil {
		return nil, g.failed
	}
	if g.next == nil {
		g.next = &round{done: make(chan struct{})}
	}
	return g.next, nil
}

// finish waits for a round, or gets the turn and serves it.
func (g *Group) finish(ctx context.Context, r *round) error {
	select {
	case g.turn <- struct{}{}:
		// Yield, so that writers whose answers have arrived join this round. Without this a busy broker syncs more than twice as
		// often. If no other goroutine can run, Gosched returns at once.
		runtime.Gosched()
		g.serve(r)
		<-g.turn
	case <-r.done:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return r.err
}

// serve syncs for a round, unless another caller has done so before the turn was free.
func (g *Group) serve(r *round) {
	g.mu.Lock()
	mine := g.next == r
	if mine {
		g.next = nil
	}
	g.mu.Unlock()
	if !mine {
		return // the caller that reset it has closed done before it released the turn
	}
	if r.err = g.Failure(); r.err == nil {
		acked := g.acked.Load()
		if r.err = g.sync(); r.err == nil {
			g.synced.Store(acked)
		}
	}
	if failure, failed := errors.AsType[*Failure](r.err); failed && g.Failure() == nil {
		g.mu.Lock()
		g.failed = failure
		g.mu.Unlock()
		g.log.Error("the disk failed: nothing that is written from now on is confirmed", "error", failure)
	}
	close(r.done)
}

// Failure returns the error of the first sync that failed, or nil.
func (g *Group) Failure() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.failed
}

// Close serves the waiting callers and refuses later ones.
func (g *Group) Close() {
	r, err := g.join(true)
	if err != nil {
		return
	}
	// Waiting callers get the error, if there is one.
	_ = g.finish(context.Background(), r)
}

// sync syncs the block that was last at the previous sync, which may have grown, and all younger blocks. Everything written
// before the call is in one of these blocks, unless it was deleted meanwhile.
func (g *Group) sync() error {
	numbers, err := g.blocks.look()
	if err != nil {
		return err
	}
	from, _ := slices.BinarySearch(numbers, g.last)
	for _, n := range numbers[from:] {
		// The server removes a block when everything in it is deleted.
		if err := g.disk.file(g.blocks.path(n)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	rewritten, err := g.syncRewritten(numbers, from)
	if err != nil {
		return err
	}
	if rewritten || !slices.Equal(numbers, g.named) {
		// The folder holds the name of a new block. It also holds the removal of a block, which may be the only trace of a
		// delete.
		if err := g.disk.folder(g.blocks.dir); err != nil {
			return err
		}
		g.named = numbers
	}
	g.last = max(g.last, numbers[len(numbers)-1])
	return nil
}

// syncRewritten syncs old blocks whose file the server has replaced to reclaim space. The server does not sync the new file, and
// its content was acknowledged long ago. Blocks from newer on are synced anyway.
func (g *Group) syncRewritten(numbers []int, newer int) (found bool, err error) {
	if g.files != nil && g.blocks.listed == g.seen {
		return false, nil // no file was replaced since
	}
	files := make(map[int]os.FileInfo, len(numbers))
	for i, n := range numbers {
		info, err := os.Stat(g.blocks.path(n))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return found, err
		}
		if before, known := g.files[n]; known && i < newer && !os.SameFile(before, info) {
			found = true
			if err := g.disk.file(g.blocks.path(n)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return found, err
			}
		}
		files[n] = info
	}
	g.files, g.seen = files, g.blocks.listed
	return found, nil
}
