package natsembed

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// granularity exceeds the resolution of folder times in any file system.
const granularity = 2 * time.Second

// blockFolder lists the block files of a stream. Block numbers rise with gaps: the server removes a block that becomes empty,
// possibly before it was ever listed.
//
// Listing some hundred blocks costs as much as a sync, so the folder is listed again only after it has changed. A change shows in
// the folder's time, but not reliably: a second change within the same tick of the file system's clock leaves the time as it is.
// So a list is final only if it was made more than granularity after the time was first seen.
type blockFolder struct {
	dir string

	info    os.FileInfo // of the folder, at the last call of look
	listed  *blocks
	changed time.Time // modification time of the folder at the last listing
	seen    time.Time // when the folder first had that time
	settled bool      // another change would change that time
}

// blocks are the block files of a stream, as they were when the folder was listed.
type blocks struct {
	numbers []int // ascending
	files   map[int]os.FileInfo
}

// Names in the folder of a stream, as the server (nats-server 2.15.2) uses them.
const (
	metadataFile = "meta.inf"
	blocksFolder = "msgs"
)

func folderOf(storeDir, stream string) blockFolder {
	return blockFolder{dir: filepath.Join(storeDir, "jetstream", "$G", "streams", stream, blocksFolder)}
}

func (b *blockFolder) path(n int) string { return filepath.Join(b.dir, strconv.Itoa(n)+".blk") }

// look returns the existing blocks. If the folder cannot have changed, it returns those of the previous call.
func (b *blockFolder) look() (*blocks, error) {
	info, err := os.Stat(b.dir)
	if err != nil {
		return nil, err
	}
	same := info.ModTime().Equal(b.changed) && os.SameFile(info, b.info)
	b.info = info
	if same && b.settled {
		return b.listed, nil
	}
	now := time.Now()
	if !same {
		b.changed, b.seen = info.ModTime(), now
	}
	b.settled = false
	if b.listed, err = b.list(); err != nil {
		return nil, err
	}
	// Windows may update the time of a folder late.
	b.settled = now.Sub(b.seen) > granularity && runtime.GOOS != "windows"
	return b.listed, nil
}

func (b *blockFolder) list() (*blocks, error) {
	entries, err := os.ReadDir(b.dir)
	if err != nil {
		return nil, err
	}
	found := &blocks{files: map[int]os.FileInfo{}}
	for _, entry := range entries {
		number, ok := strings.CutSuffix(entry.Name(), ".blk")
		n, err := strconv.Atoi(number)
		if !ok || err != nil {
			continue
		}
		switch found.files[n], err = entry.Info(); {
		case errors.Is(err, fs.ErrNotExist):
			delete(found.files, n) // it was removed since
		case err != nil:
			return nil, err
		default:
			found.numbers = append(found.numbers, n)
		}
	}
	if len(found.numbers) == 0 {
		return nil, fmt.Errorf("no block files in %s: the server keeps its streams elsewhere", b.dir)
	}
	slices.Sort(found.numbers)
	return found, nil
}
