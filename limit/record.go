package limit

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"time"
)

// record is the value of a key in the bucket. It has ages instead of times, because the clocks of processes and servers differ and may be set. An
// age is at most the true one: each process adds the time for which it has known the record, by a clock that never runs ahead.
type record struct {
	Used    []slice  `json:"used,omitempty"`
	Holders []holder `json:"holders,omitempty"`
}

// slice is a number of reported begins. Each was at least Age ago. Slices that were merged into it were at most Span older.
type slice struct {
	N    int           `json:"n"`
	Age  time.Duration `json:"age"`
	Span time.Duration `json:"span,omitempty"`
}

// holder is a process that holds a part of the limits, or waits for one.
type holder struct {
	ID    string        `json:"id"`
	Open  int           `json:"open,omitempty"`  // begins that it may make, or has made and not reported
	Run   int           `json:"run,omitempty"`   // handlers that it may run
	Lacks string        `json:"lacks,omitempty"` // what it waits for: lacksBegin, lacksRun or ""
	Wait  time.Duration `json:"wait,omitempty"`  // for how long it has waited
	Age   time.Duration `json:"age"`             // since its last write
}

const (
	lacksBegin = "begin"
	lacksRun   = "run"

	// maxNumber and maxAge bound the values in a record, so that no sum overflows.
	maxNumber = 1 << 30
	maxAge    = 100 * 365 * 24 * time.Hour
)

func decode(value []byte) (r record, err error) {
	if err := json.Unmarshal(value, &r); err != nil {
		return record{}, err
	}
	for _, s := range r.Used {
		if s.N < 0 || s.N > maxNumber || s.Age < 0 || s.Age > maxAge || s.Span < 0 || s.Span > maxAge {
			return record{}, fmt.Errorf("it has a slice %+v", s)
		}
	}
	for _, h := range r.Holders {
		if h.Open < 0 || h.Open > maxNumber || h.Run < 0 || h.Run > maxNumber || h.Wait < 0 || h.Wait > maxAge || h.Age < 0 || h.Age > maxAge {
			return record{}, fmt.Errorf("it has a holder %+v", h)
		}
	}
	return r, nil
}

// unknown returns a holder of the whole limit, for a record that cannot be read. It never writes, so it is removed after the TTL.
func (c *Config) unknown() holder { return holder{ID: "unknown", Open: c.Rate, Run: c.Concurrent} }

// of returns the holder with an ID, or the zero holder.
func (r record) of(id string) holder {
	if i := slices.IndexFunc(r.Holders, func(h holder) bool { return h.ID == id }); i >= 0 {
		return r.Holders[i]
	}
	return holder{}
}

// later returns the record for a process that has known it for d. It removes slices that have left the window, and other holders that have not
// written for the TTL. The open begins of such a holder count as made a TTL after its last write, because it made none later.
func (r record) later(d time.Duration, id string, c *Config) (next record) {
	for _, h := range r.Holders {
		h.Age, h.Wait = h.Age+d, h.Wait+d
		switch {
		case h.Age < c.TTL || h.ID == id:
			next.Holders = append(next.Holders, h)
		case h.Open > 0:
			next.Used = append(next.Used, slice{N: h.Open, Age: h.Age - c.TTL})
		}
	}
	for _, s := range r.Used {
		s.Age += d
		next.Used = append(next.Used, s)
	}
	next.Used = slices.DeleteFunc(next.Used, func(s slice) bool { return s.Age >= c.kept() })
	return next
}

// merge merges slices that are within span of each other. A merged slice counts as long as its youngest begin. Without the bound, slices could be
// merged again and again, and the oldest begins would count for ever.
func (r *record) merge(span time.Duration) {
	slices.SortFunc(r.Used, func(a, b slice) int { return cmp.Compare(a.Age, b.Age) })
	var merged []slice
	for _, s := range r.Used {
		if n := len(merged) - 1; n >= 0 && s.Age+s.Span-merged[n].Age <= span && merged[n].N <= maxNumber-s.N {
			merged[n].N += s.N
			merged[n].Span = max(merged[n].Span, s.Age+s.Span-merged[n].Age)
		} else {
			merged = append(merged, s)
		}
	}
	r.Used = merged
}

// next returns the time until a slice leaves the window, or a silent holder is removed.
func (r record) next(id string, c *Config) time.Duration {
	next := c.TTL
	for _, s := range r.Used {
		next = min(next, c.kept()-s.Age)
	}
	for _, h := range r.Holders {
		if h.ID != id {
			next = min(next, c.TTL-h.Age)
		}
	}
	return next
}
