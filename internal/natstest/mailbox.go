package natstest

import "sync"

// mailbox is an unbounded queue with one reader. Writers never block, which
// is what keeps the two synchronous ends of a net.Pipe from waiting for each
// other.
type mailbox[T any] struct {
	mu     sync.Mutex
	items  []T
	ended  bool
	filled chan struct{} // has a token while there may be news
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

// end says that nothing more will be put.
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

// take waits for items and returns all there are. It returns nil when done is
// closed, or when the mailbox is empty and has ended.
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
