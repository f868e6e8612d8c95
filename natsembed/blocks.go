package natsembed

import (
	"fmt"
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

// blockFolder lists the block files of a stream. Block numbers rise with gaps: a block that becomes empty is removed, possibly
// before anybody has seen it.
//
// Listing some hundred blocks costs as much as a sync, so the folder is listed again only after it has changed. A change shows in
// the folder's time, but not reliably: a second change within the same tick of the file system's clock leaves the time as it is.
// So a list is final only if it was made more than granularity after the time was first seen.
type blockFolder struct {
	dir string

	info    os.FileInfo // of the folder, at the last call of look
	numbers []int       // of the last listing, ascending
	changed time.Time   // of the folder, at the last listing
	seen    time.Time   // when it first had that time
	listed  int         // how often it was listed
	settled bool        // that time cannot hide another change
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

// look returns the numbers of the existing blocks. The caller must not modify the slice.
func (b *blockFolder) look() ([]int, error) {
	info, err := os.Stat(b.dir)
	if err != nil {
		return nil, err
	}
	same := info.ModTime().Equal(b.changed) && os.SameFile(info, b.info)
	b.info = info
	if same && b.settled {
		return b.numbers, nil
	}
	now := time.Now()
	if !same {
		b.changed, b.seen = info.ModTime(), now
	}
	b.settled = false
	b.listed++
	if b.numbers, err = listBlocks(b.dir); err != nil {
		return nil, err
	}
	// Windows may update the time of a folder late.
	b.settled = now.Sub(b.seen) > granularity && runtime.GOOS != "windows"
	return b.numbers, nil
}

func listBlocks(dir string) ([]int, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var numbers []int
	for _, entry := range entries {
		number, ok := strings.CutSuffix(entry.Name(), ".blk")
		if n, err := strconv.Atoi(number); ok && err == nil {
			numbers = append(numbers, n)
		}
	}
	if len(numbers) == 0 {
		return nil, fmt.Errorf("no block files in %s: the server keeps its streams elsewhere", dir)
	}
	slices.Sort(numbers)
	return numbers, nil
}
