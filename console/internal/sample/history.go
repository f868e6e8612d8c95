package sample

import (
	"math"
	"sync"
	"time"
)

const (
	// step is the time between two points of a history, and points how many there are: an hour's.
	step   = 10 * time.Second
	points = 360
)

// History keeps the values of the last hour of any number of objects, with width values each. It may be used by several
// goroutines. A value takes 4 bytes, so 1,000 objects of 6 values take 9 MB.
type History struct {
	width int

	mu    sync.Mutex
	rings map[string]*ring
	swept int64
}

type ring struct {
	last   int64 // the step of the newest point
	values []float32
}

var gap = float32(math.NaN())

// NewHistory makes a history of objects with width values each.
func NewHistory(width int) *History { return &History{width: width, rings: map[string]*ring{}} }

// Put records the values of an object at a time. Of several within ten seconds the last stay.
func (h *History) Put(at time.Time, key string, values ...float64) {
	now := at.UnixNano() / int64(step)
	h.mu.Lock()
	defer h.mu.Unlock()
	r := h.rings[key]
	if r == nil {
		r = &ring{last: now - points, values: make([]float32, points*h.width)}
		for i := range r.values {
			r.values[i] = gap
		}
		h.rings[key] = r
	}
	if now < r.last {
		return
	}
	for t := max(r.last+1, now-points+1); t < now; t++ {
		for i := range h.width {
			r.values[int(t%points)*h.width+i] = gap
		}
	}
	r.last = now
	for i := range h.width {
		r.values[int(now%points)*h.width+i] = float32(values[i])
	}
	h.sweep(now)
}

// sweep forgets objects that have had no value for an hour. The caller holds the lock.
func (h *History) sweep(now int64) {
	if now-h.swept < points/60 {
		return
	}
	h.swept = now
	for key, r := range h.rings {
		if now-r.last >= points {
			delete(h.rings, key)
		}
	}
}

// Values are n of the i-th values of an object over the last hour, oldest first and evenly spaced. A gap is not a number.
func (h *History) Values(at time.Time, key string, i, n int) []float64 {
	now := at.UnixNano() / int64(step)
	out := make([]float64, n)
	h.mu.Lock()
	defer h.mu.Unlock()
	r := h.rings[key]
	per := points / n
	for j := range out {
		out[j] = math.NaN()
		for k := range per {
			t := now - points + 1 + int64(j*per+k)
			if r == nil || t > r.last || t <= r.last-points {
				continue
			}
			if v := float64(r.values[int(t%points)*h.width+i]); !math.IsNaN(v) {
				out[j] = v // the last of several stays
			}
		}
	}
	return out
}
