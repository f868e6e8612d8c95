package natsembed

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
)

// group makes a stream durable. The server acknowledges a message when it has written it to the last block file of its stream. It syncs
// that file only at an interval, or after every message. A group syncs the file for all callers that have arrived during the previous
// sync: one sync serves any number of writes, and a lone write waits for its own sync only. One of the callers does the sync for the
// others. A separate goroutine would cost two switches more.
//
// It relies on these properties of nats-server 2.15.2, which are not documented promises:
//
//   - The blocks of a stream are the files N.blk in jetstream/$G/streams/STREAM/msgs of the store folder. The numbers rise and have gaps.
//   - A message is in the last block, by write(2), before it is acknowledged. It stays there as long as it is stored, or until the server
//     rewrites the block.
//   - A delete appends a tombstone to the last block. Deleting the last message of a block removes the file.
//   - A purge of a whole stream replaces the folder of its blocks.
//
// So two syncs cover all acknowledged writes: one of the last block that was synced before and of all younger blocks, and one of
// the folder if its list has changed.
type group struct {
	disk     *disk
	storeDir string
	stream   string

	turn chan struct{} // full during a sync
	// Guarded by turn:
	blocks blockFolder
	synced *blocks        // at the last sync
	whole  [2]os.FileInfo // the stream's metadata and the folder of its blocks, when the whole stream was last synced

	mu   sync.Mutex
	next *round // the next sync, which has not begun

	// acked is the highest sequence that a caller knows to be acknowledged. Everything up to durable is on disk.
	acked, durable atomic.Uint64
}

// round is one sync for all callers that joined before it began.
type round struct {
	done chan struct{}
	err  error // set before done is closed
}

func newGroup(storeDir, stream string, d *disk) *group {
	return &group{disk: d, storeDir: storeDir, stream: stream, blocks: folderOf(storeDir, stream), turn: make(chan struct{}, 1)}
}

// waitAt returns once the message with a sequence is on disk. The zero sequence stands for everything written before the call.
func (g *group) waitAt(ctx context.Context, seq uint64) error {
	if seq > 0 && seq <= g.durable.Load() {
		return nil
	}
	for old := g.acked.Load(); seq > old && !g.acked.CompareAndSwap(old, seq); {
		old = g.acked.Load()
	}
	return g.wait(ctx)
}

// wait returns once everything written before the call is on disk. It joins a round, or gets the turn and serves it.
func (g *group) wait(ctx context.Context) error {
	if err := g.disk.failure(); err != nil {
		return err
	}
	r := g.join()
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

func (g *group) join() *round {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.next == nil {
		g.next = &round{done: make(chan struct{})}
	}
	return g.next
}

// serve syncs for a round, unless another caller has done so before the turn was free.
func (g *group) serve(r *round) {
	g.mu.Lock()
	mine := g.next == r
	if mine {
		g.next = nil
	}
	g.mu.Unlock()
	if !mine {
		return // the caller that reset next has closed done before it released the turn
	}
	if r.err = g.disk.failure(); r.err == nil {
		acked := g.acked.Load()
		if r.err = g.sync(); r.err == nil && acked <= g.acked.Load() { // sync resets acked for another stream of the same name
			g.durable.Store(acked)
		}
	}
	g.disk.fail(r.err, g.stream)
	close(r.done)
}

// sync syncs the last block, and each block that is another file or larger than at the previous sync: a new block, the block that was the last
// then, and a block that the server has rewritten to reclaim space. The server does not sync the new file of a rewritten block, whose messages
// were acknowledged long ago.
func (g *group) sync() error {
	now, err := g.blocks.look() // before the sync: the next one covers writes during this one
	if err != nil {
		return err
	}
	if done, err := g.syncWhole(); err != nil {
		return err
	} else if done {
		g.synced = now
		return nil
	}
	last, numbers := now.numbers[len(now.numbers)-1], now.numbers
	if now == g.synced {
		numbers = []int{last} // only the last block can have grown
	}
	renamed := len(now.numbers) != len(g.synced.numbers)
	grew := last // the block that was the last may have grown since; on Windows, a listing can show an old size
	if n := len(g.synced.numbers); n > 0 {
		grew = g.synced.numbers[n-1]
	}
	for _, n := range numbers {
		before, known := g.synced.files[n]
		other := !known || !os.SameFile(before, now.files[n])
		renamed = renamed || other
		if !other && n != last && n != grew && before.Size() == now.files[n].Size() {
			continue
		}
		// The server removes a block when everything in it is deleted.
		if err := g.disk.file(g.blocks.path(n)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if renamed {
		// The folder holds the name of a new block. It also holds the removal of a block, which may be the only trace of a delete.
		if err := g.disk.folder(g.blocks.dir); err != nil {
			return err
		}
	}
	g.synced = now
	return nil
}

// syncWhole syncs the whole stream if it may never have been synced: at the first sync, and after the stream was purged, recreated
// or reconfigured.
func (g *group) syncWhole() (done bool, err error) {
	dir := filepath.Dir(g.blocks.dir)
	meta, err := os.Stat(filepath.Join(dir, metadataFile))
	if err != nil {
		return false, err
	}
	now := [2]os.FileInfo{meta, g.blocks.info}
	if before := g.whole[0]; before != nil && os.SameFile(before, meta) && before.ModTime().Equal(meta.ModTime()) && os.SameFile(g.whole[1], now[1]) {
		return false, nil
	}
	if g.whole[0] != nil {
		g.acked.Store(0)
		g.durable.Store(0)
	}
	if err := g.disk.stream(g.storeDir, dir); err != nil {
		return false, err
	}
	g.whole = now
	return true, nil
}
