package jobindex

import (
	"iter"
	"slices"
	"sort"
	"time"
)

// chunkSize limits how many keys an insertion or deletion moves.
const chunkSize = 512

// key orders the entries of an ordered set: by major, then by seq.
type key struct {
	major int64
	seq   uint64
}

func (k key) less(o key) bool {
	return k.major < o.major || k.major == o.major && k.seq < o.seq
}

// time returns the time in a key that is ordered by time.
func (k key) time() time.Time { return FromUnixNano(k.major) }

// seqKey orders entries by sequence.
type seqKey uint64

func (k seqKey) less(o seqKey) bool { return k < o }

// ordered is the constraint for keys of an orderedSet. Two keys are equal if neither is less than the other.
type ordered[K any] interface{ less(other K) bool }

// orderedSet is a sorted list of keys in chunks. Most keys are appended at the end and removed at the front, which costs almost nothing. At any other
// place, part of one chunk is moved. The set needs the bytes of its keys, and about a tenth more if keys arrive slightly out of order.
type orderedSet[K ordered[K]] struct {
	chunks [][]K // none is empty
	size   int
}

func newChunk[K any](size int, keys ...K) []K { return append(make([]K, 0, size), keys...) }

// chunkOf returns the index of the chunk to which k belongs.
func (s *orderedSet[K]) chunkOf(k K) int {
	i := sort.Search(len(s.chunks), func(i int) bool { return k.less(s.chunks[i][0]) })
	return max(i-1, 0)
}

func find[K ordered[K]](chunk []K, k K) (int, bool) {
	i := sort.Search(len(chunk), func(i int) bool { return !chunk[i].less(k) })
	return i, i < len(chunk) && !k.less(chunk[i])
}

// get returns the element equal to k.
func (s *orderedSet[K]) get(k K) (found K, ok bool) {
	if len(s.chunks) == 0 {
		return found, false
	}
	c := s.chunkOf(k)
	i, ok := find(s.chunks[c], k)
	if ok {
		found = s.chunks[c][i]
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
	i, found := find(s.chunks[c], k)
	if found {
		return false
	}
	s.size++
	if len(s.chunks[c]) < chunkSize {
		s.chunks[c] = slices.Insert(s.chunks[c], i, k)
		return true
	}
	if c+1 < len(s.chunks) && len(s.chunks[c+1]) < chunkSize {
		// The chunk's last key moves to the next chunk, unless k itself is the last key.
		full := s.chunks[c]
		if i < chunkSize {
			last := full[chunkSize-1]
			copy(full[i+1:], full[i:])
			full[i], k = k, last
		}
		s.chunks[c+1] = slices.Insert(s.chunks[c+1], 0, k)
		return true
	}
	// Split at k's place if that is near an end, because later keys will arrive at the same place. Halves of a chunk would stay half empty.
	at := chunkSize / 2
	if i > chunkSize*3/4 {
		at = i
	}
	right := newChunk(chunkSize, s.chunks[c][at:]...)
	s.chunks[c] = s.chunks[c][:at]
	if i < at {
		s.chunks[c] = slices.Insert(s.chunks[c], i, k)
	} else {
		right = slices.Insert(right, i-at, k)
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
	i, found := find(s.chunks[c], k)
	if !found {
		return false
	}
	s.size--
	if len(s.chunks[c]) == 1 {
		s.chunks = slices.Delete(s.chunks, c, c+1)
		return true
	}
	s.chunks[c] = slices.Delete(s.chunks[c], i, i+1)
	return true
}

func (s *orderedSet[K]) len() int { return s.size }

// first returns the first key of a set that is not empty.
func (s *orderedSet[K]) first() K { return s.chunks[0][0] }

// ascend returns the keys after k in order. A nil k means from the start.
func (s *orderedSet[K]) ascend(k *K) iter.Seq[K] {
	return func(yield func(K) bool) {
		if len(s.chunks) == 0 {
			return
		}
		c, i := 0, 0
		if k != nil {
			c = s.chunkOf(*k)
			var found bool
			if i, found = find(s.chunks[c], *k); found {
				i++
			}
		}
		for ; c < len(s.chunks); c, i = c+1, 0 {
			for ; i < len(s.chunks[c]); i++ {
				if !yield(s.chunks[c][i]) {
					return
				}
			}
		}
	}
}

// descend returns the keys before k in reverse order. A nil k means from the end.
func (s *orderedSet[K]) descend(k *K) iter.Seq[K] {
	return func(yield func(K) bool) {
		if len(s.chunks) == 0 {
			return
		}
		c := len(s.chunks) - 1
		i := len(s.chunks[c]) - 1
		if k != nil {
			c = s.chunkOf(*k)
			i, _ = find(s.chunks[c], *k)
			i--
		}
		for {
			for ; i >= 0; i-- {
				if !yield(s.chunks[c][i]) {
					return
				}
			}
			if c--; c < 0 {
				return
			}
			i = len(s.chunks[c]) - 1
		}
	}
}
