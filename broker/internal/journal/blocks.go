package journal

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

// granularity is more than any file system rounds the times of its folders by.
const granularity = 2 * time.Second

// blockFolder knows which block files a stream has. Their numbers rise, but not
// one by one: a block that has become empty is removed, even if it never was the
// last one when somebody looked.
//
// The folder is listed again only after it has changed, because a list costs as
// much as a sync where there are some hundred blocks. Its time tells that, but
// not at once: a second change within the same tick of the file system's clock
// leaves the time as it is. So a list counts only if it was made that much after
// the time was first seen.
type blockFolder struct {
	dir string

	numbers []int     // as listed last, ascending
	changed time.Time // of the folder, when it was listed last
	seen    time.Time // when it had that time first
	listed  int       // how often it was listed
	settled bool      // no change can hide behind that time
}

func folderOf(storeDir, stream string) blockFolder {
	return blockFolder{dir: filepath.Join(storeDir, "jetstream", "$G", "streams", stream, "msgs")}
}

func (b *blockFolder) path(n int) string { return filepath.Join(b.dir, strconv.Itoa(n)+".blk") }

// look returns the numbers of the blocks there are. The caller must not change
// them.
func (b *blockFolder) look() ([]int, error) {
	info, err := os.Stat(b.dir)
	if err != nil {
		return nil, err
	}
	same := info.ModTime().Equal(b.changed)
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
	// Windows may write the time of a folder later.
	b.settled = now.Sub(b.seen) > granularity && runtime.GOOS != "windows"
	return b.numbers, nil
}

func listBlocks(dir string) ([]int, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	names, err := f.Readdirnames(-1)
	// Nothing was written to it.
	_ = f.Close()
	if err != nil {
		return nil, err
	}
	var numbers []int
	for _, name := range names {
		number, ok := strings.CutSuffix(name, ".blk")
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
