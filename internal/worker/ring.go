package worker

// ring is a queue whose memory is used again.
type ring[T any] struct {
	items []T
	head  int
}

func (r *ring[T]) len() int { return len(r.items) - r.head }

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
