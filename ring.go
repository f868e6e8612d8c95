package jetpull

import "slices"

// ring is a queue whose memory is used again.
type ring[T any] struct {
	items []T
	head  int
}

func (r *ring[T]) len() int { return len(r.items) - r.head }

// all is what is in the queue, to be read and changed in place.
func (r *ring[T]) all() []T { return r.items[r.head:] }

func (r *ring[T]) push(v T) {
	if r.head > len(r.items)/2 && len(r.items) == cap(r.items) {
		n := copy(r.items, r.items[r.head:])
		clear(r.items[n:])
		r.items, r.head = r.items[:n], 0
	}
	r.items = append(r.items, v)
}

func (r *ring[T]) pop() T {
	v := r.items[r.head]
	clear(r.items[r.head : r.head+1])
	r.head++
	if r.head == len(r.items) {
		r.items, r.head = r.items[:0], 0
	}
	return v
}

// insert puts v before the i-th of the queue, and remove takes that out.
func (r *ring[T]) insert(i int, v T) { r.items = slices.Insert(r.items, r.head+i, v) }

func (r *ring[T]) remove(i int) { r.items = slices.Delete(r.items, r.head+i, r.head+i+1) }

// removeAll takes out all that drop says.
func (r *ring[T]) removeAll(drop func(T) bool) {
	r.items = r.items[:r.head+len(slices.DeleteFunc(r.all(), drop))]
}
