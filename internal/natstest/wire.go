package natstest

import (
	"sync"
	"time"
)

// wire is one direction of a connection. It delivers items in order, each after its own delay, but never before an earlier item.
type wire[T any] struct {
	delay func() time.Duration // nil for none

	mu   sync.Mutex
	last time.Time // when the last item is due
	box  *mailbox[inFlight[T]]
}

type inFlight[T any] struct {
	due  time.Time
	item T
}

func newWire[T any]() *wire[T] { return &wire[T]{box: newMailbox[inFlight[T]]()} }

func (w *wire[T]) put(item T) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.delay == nil {
		w.box.put(inFlight[T]{item: item})
		return
	}
	due := time.Now().Add(w.delay())
	if due.Before(w.last) {
		due = w.last
	}
	w.last = due
	w.box.put(inFlight[T]{due: due, item: item})
}

// putNow puts an item in without delay.
func (w *wire[T]) putNow(item T) { w.box.put(inFlight[T]{item: item}) }

// run calls deliver with each item when it is due, until deliver returns false or done is closed.
func (w *wire[T]) run(done <-chan struct{}, deliver func(T) bool) {
	for {
		items := w.box.take(done)
		if items == nil {
			return
		}
		for _, f := range items {
			if wait := time.Until(f.due); wait > 0 {
				select {
				case <-time.After(wait):
				case <-done:
					return
				}
			}
			if !deliver(f.item) {
				return
			}
		}
	}
}

// mailbox is an unbounded queue with one reader. Writers never block, so the two synchronous ends of a net.Pipe do not wait for each other.
type mailbox[T any] struct {
	mu     sync.Mutex
	items  []T
	ended  bool
	filled chan struct{} // has a token while there may be items, or the end
}

func newMailbox[T any]() *mailbox[T] {
	return &mailbox[T]{filled: make(chan struct{}, 1)}
}

func (m *mailbox[T]) put(item T) {
	m.mu.Lock()
	m.items = append(m.items, item)
	m.mu.Unlock()
	m.wake()
}

// end marks the end of the items.
func (m *mailbox[T]) end() {
	m.mu.Lock()
	m.ended = true
	m.mu.Unlock()
	m.wake()
}

func (m *mailbox[T]) wake() {
	select {
	case m.filled <- struct{}{}:
	default:
	}
}

// take waits for items and returns all of them. It returns nil when done is closed, or when the mailbox is empty and has ended.
func (m *mailbox[T]) take(done <-chan struct{}) []T {
	for {
		m.mu.Lock()
		items, ended := m.items, m.ended
		m.items = nil
		m.mu.Unlock()
		if len(items) > 0 || ended {
			return items
		}
		select {
		case <-m.filled:
		case <-done:
			return nil
		}
	}
}
