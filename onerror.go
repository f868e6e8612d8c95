package jetpull

import (
	"fmt"
	"log/slog"
	"sync"
)

// problems passes what went wrong to OnError, in order and off the path of delivery.
// A callback that does not return must not fill the memory, so only so many wait; of
// those beyond it is told how many they were, in their place.
type problems struct {
	call func(error) // nil: none
	post func(func())
	log  *slog.Logger

	mu      sync.Mutex
	waiting int     // for a call
	missed  *missed // nil: there is room
	warned  bool    // until it has caught up
}

// missed are problems that OnError is not told of one by one.
type missed struct{ n int }

// problemsMost bounds what waits for OnError. All handlers may fail at once.
const problemsMost = 4096

// tell has OnError called with err.
func (p *problems) tell(err error) {
	if p.call != nil && p.admit(err) {
		p.log.Warn("jetpull: OnError does not keep up, and further problems are only counted", "waiting", problemsMost)
	}
}

// admit queues err, or counts it; news tells that this is the first one that it only
// counts.
func (p *problems) admit(err error) (news bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.missed != nil {
		p.missed.n++
		return false
	}
	if p.waiting < problemsMost {
		p.waiting++
		p.post(func() {
			p.begun()
			p.call(err)
		})
		return false
	}
	m := &missed{1}
	p.missed = m
	// Its turn comes after all that wait, and then there is room: the number is
	// final.
	p.post(func() { p.call(m.err()) })
	news = !p.warned
	p.warned = true
	return news
}

// begun notes that one waits no longer. There is room again when half of them are
// done, so that OnError does not hear of what was missed with every other call.
func (p *problems) begun() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waiting--
	if p.waiting <= problemsMost/2 {
		p.missed = nil
	}
	if p.waiting == 0 {
		p.warned = false
	}
}

func (m *missed) err() error {
	return fmt.Errorf("jetpull: %d problems more were not told one by one: OnError took too long; let it hand them on and return", m.n)
}
