// Package due is a queue of entries, ordered by the times at which they are due. It has no clock, lock or goroutine: time is an argument, and the
// caller must synchronize access to a Heap.
package due

import (
	"container/heap"
	"time"
)

// Heap holds items with the times at which they are due. The zero Heap is empty.
type Heap[T any] struct{ items items[T] }

// Len returns the number of items.
func (h *Heap[T]) Len() int { return len(h.items) }

// Add adds an item, and reports whether it is now the first.
func (h *Heap[T]) Add(at time.Time, value T) (first bool) {
	first = len(h.items) == 0 || at.Before(h.items[0].at)
	heap.Push(&h.items, item[T]{at, value})
	return first
}

// Next returns when the first item is due. ok is false if the heap is empty.
func (h *Heap[T]) Next() (at time.Time, ok bool) {
	if len(h.items) == 0 {
		return time.Time{}, false
	}
	return h.items[0].at, true
}

// Pop removes and returns the first item. ok is false if no item is due.
func (h *Heap[T]) Pop(now time.Time) (value T, ok bool) {
	if at, ok := h.Next(); !ok || at.After(now) {
		return value, false
	}
	return heap.Pop(&h.items).(item[T]).value, true
}

type item[T any] struct {
	at    time.Time
	value T
}

// items implement heap.Interface.
type items[T any] []item[T]

func (s items[T]) Len() int           { return len(s) }
func (s items[T]) Less(i, j int) bool { return s[i].at.Before(s[j].at) }
func (s items[T]) Swap(i, j int)      { s[i], s[j] = s[j], s[i] }
func (s *items[T]) Push(x any)        { *s = append(*s, x.(item[T])) }
func (s *items[T]) Pop() any {
	last := len(*s) - 1
	x := (*s)[last]
	(*s)[last] = item[T]{} // so that the array does not retain its value
	*s = (*s)[:last]
	return x
}
