package sample

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/gob"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"time"
)

// sweepEvery is the interval between two sweeps.
const sweepEvery = time.Minute

// History holds the values of the last hour and of the last day for any number of objects, with width values each. A value takes 4 bytes, so 1,000
// objects with 6 values take 16 MB. History is safe for concurrent use.
type History struct {
	width int

	mu        sync.Mutex
	hour, day rings
	swept     time.Time
}

// rings holds the values of objects at one resolution.
type rings struct {
	step   time.Duration
	points int64
	all    map[string]*ring
}

type ring struct {
	Last   int64 // step of the newest point
	Values []float32
}

var gap = float32(math.NaN())

// NewHistory returns a history of objects with width values each.
func NewHistory(width int) *History {
	return &History{width: width, hour: rings{10 * time.Second, 360, map[string]*ring{}}, day: rings{5 * time.Minute, 288, map[string]*ring{}}}
}

// History returns a new history, which has a name among those of the sampler.
func (s *Sampler) History(name string, width int) *History {
	s.Histories[name] = NewHistory(width)
	return s.Histories[name]
}

// Put records the values of an object at a time. The last of several values within a step counts.
func (h *History) Put(at time.Time, key string, values ...float64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	sweep := at.Sub(h.swept) >= sweepEvery
	if sweep {
		h.swept = at
	}
	for _, r := range []rings{h.hour, h.day} {
		r.put(at, key, values)
		if sweep { // remove objects that no longer have values
			maps.DeleteFunc(r.all, func(_ string, one *ring) bool { return r.at(at)-one.Last >= r.points })
		}
	}
}

// at returns the step of a time.
func (r rings) at(t time.Time) int64 { return t.UnixNano() / int64(r.step) }

func (r rings) put(at time.Time, key string, values []float64) {
	now, width := r.at(at), len(values)
	one := r.all[key]
	if one == nil {
		one = &ring{now - r.points, slices.Repeat([]float32{gap}, int(r.points)*width)}
		r.all[key] = one
	}
	from, to := one.Last+1, now
	if now < one.Last { // the clock was set back: later values were not measured yet
		from, to = now+1, one.Last+1
	}
	for t := max(from, to-r.points); t < to; t++ {
		for i := range width {
			one.Values[int(t%r.points)*width+i] = gap
		}
	}
	one.Last = now
	for i := range width {
		one.Values[int(now%r.points)*width+i] = float32(values[i])
	}
}

// Values returns n of the i-th values of an object over a span that ends at at, oldest first and evenly spaced. The span is an hour, or up to a day.
// NaN is a gap.
func (h *History) Values(at time.Time, span time.Duration, key string, i, n int) []float64 {
	r := h.hour
	if span > time.Hour {
		r = h.day
	}
	out := make([]float64, n)
	h.mu.Lock()
	defer h.mu.Unlock()
	one, now, all := r.all[key], r.at(at), int64(span/r.step)
	for j := range out {
		out[j] = math.NaN()
		for t := now - all + 1 + int64(j)*all/int64(n); one != nil && t < now-all+1+int64(j+1)*all/int64(n); t++ {
			if t > one.Last || t <= one.Last-r.points {
				continue
			}
			if v := float64(one.Values[int(t%r.points)*h.width+i]); !math.IsNaN(v) {
				out[j] = v // the last of several counts
			}
		}
	}
	return out
}

// Export returns the last day of all objects. If that exceeds most bytes, it returns only the object without a name.
func (h *History) Export(most int) ([]byte, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	data, err := encode(h.day.all)
	if err == nil && len(data) > most {
		data, err = encode(map[string]*ring{"": h.day.all[""]})
	}
	return data, err
}

func encode(all map[string]*ring) ([]byte, error) {
	var b bytes.Buffer
	zip := gzip.NewWriter(&b)
	if err := cmp.Or(gob.NewEncoder(zip).Encode(all), zip.Close()); err != nil {
		return nil, fmt.Errorf("write a history: %w", err)
	}
	return b.Bytes(), nil
}

// Import adds values from Export, for objects that have no values of this process yet.
func (h *History) Import(data []byte) error {
	all := map[string]*ring{}
	zip, err := gzip.NewReader(bytes.NewReader(data))
	if err == nil {
		err = gob.NewDecoder(zip).Decode(&all)
	}
	if err != nil {
		return fmt.Errorf("read a history: %w", err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	points, width := h.day.points, h.width
	for key, one := range all {
		if one == nil || len(one.Values) != int(points)*width {
			continue // from another version
		}
		own := h.day.all[key]
		if own == nil || own.Last < one.Last {
			h.day.all[key] = one
			continue
		}
		for t := own.Last - points + 1; t <= one.Last; t++ {
			for i := int(t%points) * width; i < int(t%points+1)*width; i++ {
				if math.IsNaN(float64(own.Values[i])) {
					own.Values[i] = one.Values[i]
				}
			}
		}
	}
	return nil
}
