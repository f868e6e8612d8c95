package jsstore

import (
	"container/list"
	"sync"

	"github.com/jetpull/jetpull/broker/internal/domain"
)

// payloadCache keeps the messages last stored or read here, up to a number of
// bytes, because a message is usually read soon, and by several consumers.
type payloadCache struct {
	mu    sync.Mutex
	limit int
	size  int
	items map[uint64]*list.Element
	order list.List // of domain.Message, the last used in front
}

func newPayloadCache(limit int) *payloadCache {
	return &payloadCache{limit: limit, items: map[uint64]*list.Element{}}
}

// messageOverhead is what a message takes beside its payload, about.
const messageOverhead = 768

func messageSize(m domain.Message) int { return len(m.Payload) + messageOverhead }

func (c *payloadCache) put(m domain.Message) {
	size := messageSize(m)
	if size > c.limit/4 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.items[m.Seq]; e != nil {
		c.order.MoveToFront(e)
		return
	}
	c.items[m.Seq] = c.order.PushFront(m)
	c.size += size
	for c.size > c.limit {
		c.drop(c.order.Back())
	}
}

func (c *payloadCache) drop(e *list.Element) {
	m := c.order.Remove(e).(domain.Message)
	delete(c.items, m.Seq)
	c.size -= messageSize(m)
}

func (c *payloadCache) get(seq uint64) (domain.Message, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.items[seq]
	if e == nil {
		return domain.Message{}, false
	}
	c.order.MoveToFront(e)
	return e.Value.(domain.Message), true
}

func (c *payloadCache) remove(seq uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.items[seq]; e != nil {
		c.drop(e)
	}
}
