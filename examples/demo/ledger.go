package main

import (
	"encoding/json"
	"fmt"
	"sync"

	"github.com/nats-io/nats.go/jetstream"
)

// order is the payload of the demo's messages.
type order struct {
	ID    int    `json:"id"`
	Item  string `json:"item"`
	Cents int64  `json:"cents"`
}

var items = [...]string{"lamp", "chair", "kettle", "bicycle", "notebook", "umbrella", "teapot"}

// newOrder returns the order with a number. Its price depends only on the number, so that each side of the ledger can be summed alone.
func newOrder(id int) order {
	return order{ID: id, Item: items[id%len(items)], Cents: 100 + int64(id)*7919%50_000}
}

// ledger compares the published orders with the handled orders. Its methods are safe for concurrent use.
type ledger struct {
	mu                  sync.Mutex
	times               []int // how often each order was handled
	published, received int64 // cents
	repeated            int
}

func newLedger(orders int) *ledger { return &ledger{times: make([]int, orders)} }

func (l *ledger) publish(o order) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.published += o.Cents
}

// settle handles one message: it enters its order in the ledger.
func (l *ledger) settle(m jetstream.Msg) error {
	var o order
	if err := json.Unmarshal(m.Data(), &o); err != nil {
		return fmt.Errorf("message %s is no order: %w", m.Reply(), err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if o.ID < 0 || o.ID >= len(l.times) {
		return fmt.Errorf("message %s has order %d, which was never published", m.Reply(), o.ID)
	}
	l.times[o.ID]++
	if l.times[o.ID] > 1 {
		l.repeated++
		return nil
	}
	l.received += o.Cents
	return nil
}

// balance holds the totals of the ledger that must match at the end.
type balance struct {
	orders, once, repeated int
	published, received    int64
}

func (l *ledger) balance() balance {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := balance{orders: len(l.times), repeated: l.repeated, published: l.published, received: l.received}
	for _, n := range l.times {
		if n == 1 {
			b.once++
		}
	}
	return b
}

func (b balance) even() bool {
	return b.once == b.orders && b.repeated == 0 && b.published == b.received
}
