package jobindex

import (
	"math"
	"slices"
	"sort"
)

// chunkSize bounds what an insertion or deletion has to move.
const chunkSize = 512

// key orders the entries of an ordered set: by major, then by seq.
type key struct {
	major int64
	seq   uint64
}

func (k key) less(o key) bool {
	return k.major < o.major || k.major == o.major && k.seq < o.seq
}

// ordered is what an orderedSet can hold: neither less than the other means the same.
type ordered[K any] interface{ less(other K) bool }

// orderedSet is a sorted list of keys in chunks. Keys mostly come in order at
// the end and go from the front, which costs next to nothing; any other place
// costs moving part of one chunk. It takes the bytes of a key, and about a tenth more
// where keys overtake each other on their way.
type orderedSet[K ordered[K]] struct {
	chunks []chunk[K] // none is empty
	size   int
}

// chunk is a part of a set. span is nil since the chunk was last changed.
type chunk[K any] struct {
	keys []K
	span *span
}

// span is the least and the greatest of the values that some keys have.
type span struct{ low, high int64 }

func newChunk[K any](size int, keys ...K) chunk[K] {
	return chunk[K]{keys: append(make([]K, 0, size), keys...)}
}

// add and drop change a chunk at i.
func (c *chunk[K]) add(i int, k K) { c.keys, c.span = slices.Insert(c.keys, i, k), nil }
func (c *chunk[K]) drop(i int)     { c.keys, c.span = slices.Delete(c.keys, i, i+1), nil }

// span is the span of the values of a set's keys; ok is false for those that have
// none. Chunks that have not changed since it was last asked for are not looked at, and
// of the others no more than most: then it is not whole, and has to be asked for again.
func (s *orderedSet[K]) span(most int, value func(K) (v int64, ok bool)) (all span, whole bool) {
	all = span{math.MaxInt64, math.MinInt64}
	for i := range s.chunks {
		c := &s.chunks[i]
		if c.span == nil {
			if most--; most < 0 {
				return all, false
			}
			c.span = &span{math.MaxInt64, math.MinInt64}
			for _, k := range c.keys {
				if v, ok := value(k); ok {
					c.span.low, c.span.high = min(c.span.low, v), max(c.span.high, v)
				}
			}
		}
		all.low, all.high = min(all.low, c.span.low), max(all.high, c.span.high)
	}
	return all, true
}

// chunkOf returns the index of the chunk that k belongs into.
func (s *orderedSet[K]) chunkOf(k K) int {
	i := sort.Search(len(s.chunks), func(i int) bool { return k.less(s.chunks[i].keys[0]) })
	return max(i-1, 0)
}

func find[K ordered[K]](chunk []K, k K) (int, bool) {
	i := sort.Search(len(chunk), func(i int) bool { return !chunk[i].less(k) })
	return i, i < len(chunk) && !k.less(chunk[i])
}

// get returns the element that counts as k.
func (s *orderedSet[K]) get(k K) (found K, ok bool) {
	if len(s.chunks) == 0 {
		return found, false
	}
	c := s.chunkOf(k)
	i, ok := find(s.chunks[c].keys, k)
	if ok {
		found = s.chunks[c].keys[i]
	}
	return found, ok
}

// insert adds k and reports whether it was new.
func (s *orderedSet[K]) insert(k K) bool {
	if len(s.chunks) == 0 {
		s.chunks = append(s.chunks, newChunk(8, k))
		s.size = 1
		return true
	}
	c := s.chunkOf(k)
	i, found := find(s.chunks[c].keys, k)
	if found {
		return false
	}
	s.size++
	if len(s.chunks[c].keys) < chunkSize {
		s.chunks[c].add(i, k)
		return true
	}
	if c+1 < len(s.chunks) && len(s.chunks[c+1].keys) < chunkSize {
		// Its last key moves over, unless k is that.
		full := s.chunks[c].keys
		if i < chunkSize {
			last := full[chunkSize-1]
			copy(full[i+1:], full[i:])
			full[i], k = k, last
			s.chunks[c].span = nil
		}
		s.chunks[c+1].add(0, k)
		return true
	}
	// Split where k goes, if that is near an end: what overtakes and what follows it
	// comes to the same place, and a chunk cut in halves would stay half empty.
	at := chunkSize / 2
	if i > chunkSize*3/4 {
		at = i
	}
	right := newChunk(chunkSize, s.chunks[c].keys[at:]...)
	s.chunks[c] = chunk[K]{keys: s.chunks[c].keys[:at]}
	if i < at {
		s.chunks[c].add(i, k)
	} else {
		right.add(i-at, k)
	}
	s.chunks = slices.Insert(s.chunks, c+1, right)
	return true
}

// remove deletes k and reports whether it was there.
func (s *orderedSet[K]) remove(k K) bool {
	if len(s.chunks) == 0 {
		return false
	}
	c := s.chunkOf(k)
	i, found := find(s.chunks[c].keys, k)
	if !found {
		return false
	}
	s.size--
	if len(s.chunks[c].keys) == 1 {
		s.chunks = slices.Delete(s.chunks, c, c+1)
		return true
	}
	s.chunks[c].drop(i)
	return true
}

func (s *orderedSet[K]) len() int { return s.size }

// first and last return the ends of a set that is not empty.
func (s *orderedSet[K]) first() K { return s.chunks[0].keys[0] }

func (s *orderedSet[K]) last() K {
	c := s.chunks[len(s.chunks)-1].keys
	return c[len(c)-1]
}

// ascend calls f for each key after k, in order, until f returns false. A nil k
// starts at the front.
func (s *orderedSet[K]) ascend(k *K, f func(K) bool) {
	if len(s.chunks) == 0 {
		return
	}
	c, i := 0, 0
	if k != nil {
		c = s.chunkOf(*k)
		var found bool
		if i, found = find(s.chunks[c].keys, *k); found {
			i++
		}
	}
	for ; c < len(s.chunks); c, i = c+1, 0 {
		for ; i < len(s.chunks[c].keys); i++ {
			if !f(s.chunks[c].keys[i]) {
				return
			}
		}
	}
}

// descend calls f for each key before k, in reverse order, until f returns
// false. A nil k starts at the end.
func (s *orderedSet[K]) descend(k *K, f func(K) bool) {
	if len(s.chunks) == 0 {
		return
	}
	c := len(s.chunks) - 1
	i := len(s.chunks[c].keys) - 1
	if k != nil {
		c = s.chunkOf(*k)
		i, _ = find(s.chunks[c].keys, *k)
		i--
	}
	for {
		for ; i >= 0; i-- {
			if !f(s.chunks[c].keys[i]) {
				return
			}
		}
		if c--; c < 0 {
			return
		}
		i = len(s.chunks[c].keys) - 1
	}
}
