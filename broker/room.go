package broker

import "fmt"

// ErrStoreFull says that there is no room for another message. Jobs can still be
// claimed, delivered and deleted, which makes room.
var ErrStoreFull = fmt.Errorf("%w: the store is full", ErrUnavailable)

// Room reports why no other message can be stored now, or nil.
func (b *Broker) Room() error {
	if b.room == nil {
		return nil
	}
	return b.room()
}
