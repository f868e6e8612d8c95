package natstest

import "sync"

// mailbox is an unbounded queue with one reader. Writers never block, which
// is what keeps the two synchronous ends of a net.Pipe from waiting for each
// other.
type mailbox[T any] struct {
	mu     sync.Mutex
	items  []T
	filled chan struct{} // has a token while items may be there
}

func newMailbox[T any]() *mailbox[T] {
	return &mailbox[T]{filled: make(chan struct{}, 1)}
}

func (m *mailbox[T]) put(item T) {
	m.mu.Lock()
	m.items = append(m.items, item)
	m.mu.Unlock()
	select {
	case m.filled <- struct{}{}:
	default:
	}
}

// take waits for items and returns all there are, or nil when done is closed.
func (m *mailbox[T]) take(done <-chan struct{}) []T {
	for {
		m.mu.Lock()
		items := m.items
		m.items = nil
		m.mu.Unlock()
		if len(items) > 0 {
			return items
		}
		select {
		case <-m.filled:
		case <-done:
			return nil
		}
	}
}
