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

// Group makes a stream of an embedded server durable. The server has
// written a message to the last block file of its stream when it acknowledges
// it, but syncs that file every few minutes only, or else for every single
// message. A Group syncs it for all callers that have come while the sync
// before was under way: one sync serves as many writes as there are, and a lone
// write waits for its own only. The callers do it themselves, one for the
// others: another goroutine would have to be woken, and wake them.
//
// It never tries a second time: after a sync that failed, another of the same
// file succeeds without what the system has dropped. So the first failure is the
// answer to all who wait from then on, until the process is started again.
type Group struct {
	disk Disk
	log  *slog.Logger

	turn chan struct{} // full while somebody syncs
	// Who has the turn may use these:
	blocks blockFolder
	last   int                 // number of the last block that was synced
	named  []int               // blocks that the folder had when it was synced
	files  map[int]os.FileInfo // of the blocks, when they were listed last
	seen   int                 // listing that files are of

	mu     sync.Mutex
	next   *round // of those who wait for a sync that has not begun
	closed bool
	failed error // of the first sync that failed

	// acked is the highest sequence that the server has acknowledged, and synced
	// one up to which everything is on disk.
	acked, synced atomic.Uint64
}

// round is one sync for all who joined before it began.
type round struct {
	done chan struct{}
	err  error // before done is closed
}

// ErrClosed says that a Group was closed before a sync.
var ErrClosed = errors.New("the store is closing")

// NewGroup makes the Group of a stream of the server whose store folder it is given.
func NewGroup(storeDir, stream string, d Disk, log *slog.Logger) *Group {
	return &Group{
		disk:   d,
		log:    log.With("stream", stream),
		blocks: folderOf(storeDir, stream),
		turn:   make(chan struct{}, 1),
	}
}

// StartAt is called once, before all others and before everything that is stored
// now, which ends at acked, is synced by other means.
func (g *Group) StartAt(acked uint64) {
	g.NoteAck(acked)
	g.synced.Store(acked)
	numbers, err := g.blocks.look()
	if err != nil {
		return // there is no block yet, or the first sync tells what is wrong
	}
	g.named, g.last = numbers, numbers[len(numbers)-1]
	// With nothing known before it syncs nothing. What it cannot look at now it looks at with the first sync.
	_, _ = g.syncRewritten(numbers, len(numbers))
}

// NoteAck remembers that the server has acknowledged a sequence.
func (g *Group) NoteAck(seq uint64) {
	for {
		old := g.acked.Load()
		if seq <= old || g.acked.CompareAndSwap(old, seq) {
			return
		}
	}
}

// Has tells whether a message is on disk for sure.
func (g *Group) Has(seq uint64) bool { return seq <= g.synced.Load() }

// Wait returns once all that was written before the call is on disk.
func (g *Group) Wait(ctx context.Context) error {
	r, err := g.join(false)
	if err != nil {
		return err
	}
	return g.finish(ctx, r)
}

// join returns the round to wait for, the last one if so told.
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
		// Writers whose answers have come already join this round: without it a busy broker syncs more than twice as often.
		// Where nothing else can run, it returns at once.
		runtime.Gosched()
		g.serve(r)
		<-g.turn
	case <-r.done:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return r.err
}

// serve syncs for a round, unless that was done before the turn came.
func (g *Group) serve(r *round) {
	g.mu.Lock()
	mine := g.next == r
	if mine {
		g.next = nil
	}
	g.mu.Unlock()
	if !mine {
		return // who has it unset has closed done before giving the turn away
	}
	if r.err = g.Failure(); r.err == nil {
		r.err = g.serveAcked()
	}
	close(r.done)
}

// serveAcked syncs, and remembers up to which sequence, or that it failed.
func (g *Group) serveAcked() error {
	acked := g.acked.Load()
	err := g.sync()
	if err == nil {
		g.synced.Store(acked)
		return nil
	}
	if _, failed := errors.AsType[*Failure](err); failed {
		g.mu.Lock()
		g.failed = err
		g.mu.Unlock()
		g.log.Error("the disk failed: nothing that is written from now on is confirmed", "error", err)
	}
	return err
}

// Failure returns the error of the first sync that failed, or nil.
func (g *Group) Failure() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.failed
}

// Close serves who waits, and lets nobody wait again.
func (g *Group) Close() {
	r, err := g.join(true)
	if err != nil {
		return
	}
	// The callers that wait get the error if there is one.
	_ = g.finish(context.Background(), r)
}

// sync syncs the last block that was synced before, which may have got more, and
// those that were begun since. What was written before the call is in a block
// that there is now, if it was not deleted meanwhile.
func (g *Group) sync() error {
	numbers, err := g.blocks.look()
	if err != nil {
		return err
	}
	from, _ := slices.BinarySearch(numbers, g.last)
	for _, n := range numbers[from:] {
		// The server removes a block when all that was in it is deleted.
		if err := g.disk.file(g.blocks.path(n)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	rewritten, err := g.syncRewritten(numbers, from)
	if err != nil {
		return err
	}
	if rewritten || !slices.Equal(numbers, g.named) {
		// The name of a new block is in the folder; and that a block was removed,
		// which may be all there is of a delete.
		if err := g.disk.folder(g.blocks.dir); err != nil {
			return err
		}
		g.named = numbers
	}
	g.last = max(g.last, numbers[len(numbers)-1])
	return nil
}

// syncRewritten syncs old blocks in whose place the server has put another file, to give up space: it does that without a sync, and
// what is in the file was acknowledged long ago. Those from newer on are synced anyway.
func (g *Group) syncRewritten(numbers []int, newer int) (found bool, err error) {
	if g.files != nil && g.blocks.listed == g.seen {
		return false, nil // no file has a new name since
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
