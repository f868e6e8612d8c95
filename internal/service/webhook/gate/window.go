package gate

import (
	"slices"
	"time"
)

// Posts are POSTs that count from nearly the same time. They have an age, not a time, because the clocks of two processes differ and
// may be set.
type Posts struct {
	Age   time.Duration `json:"age"`
	Count int           `json:"count"`
}

const (
	// maxSaved bounds the saved POSTs of a window, which must fit into one message.
	maxSaved = 1000
	// MaxLimit is the largest limit of a window.
	MaxLimit = 1_000_000
)

// Window returns the POSTs that may count, for the next process that makes POSTs to the receiver. If it merges several, the last one
// stands for all, so that none leaves the window too early.
func (g *Gate) Window(now time.Time) (saved []Posts) {
	for some := range slices.Chunk(g.counted, max(1, (len(g.counted)+maxSaved-1)/maxSaved)) {
		saved = append(saved, Posts{Age: now.Sub(some[len(some)-1]).Truncate(time.Millisecond), Count: len(some)})
	}
	return saved
}

// SetWindow replaces the POSTs that count by those of the process before, which may be forged: at most [MaxLimit] count, and each counts
// as begun at most ahead from now.
func (g *Gate) SetWindow(saved []Posts, ahead time.Duration, now time.Time) {
	g.counted = nil
	for _, p := range saved {
		for range min(p.Count, MaxLimit-len(g.counted)) {
			g.count(now.Add(-max(p.Age, -ahead)))
		}
	}
}
