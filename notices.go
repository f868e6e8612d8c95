package jetpull

import (
	"context"
	"sync"

	"github.com/jetpull/jetpull/internal/lifecycle"
)

// notices calls the user's callbacks in order, on a goroutine that lives as
// long as there are any, so that none holds up the delivery of messages.
type notices struct {
	group *lifecycle.Group

	mu      sync.Mutex
	queue   []func()
	calling bool
}

func newNotices(g *lifecycle.Group) *notices { return &notices{group: g} }

func (n *notices) post(f func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.queue = append(n.queue, f)
	if !n.calling {
		n.calling = n.group.Go(n.call)
	}
}

func (n *notices) call(context.Context) {
	for {
		n.mu.Lock()
		if len(n.queue) == 0 {
			n.calling, n.queue = false, nil
			n.mu.Unlock()
			return
		}
		f := n.queue[0]
		n.queue = n.queue[1:]
		n.mu.Unlock()
		f()
	}
}

// tellPin passes a change of the pin on to whoever asked for it.
func (e *engine) tellPin(a *action) {
	gained := a.kind == actPinned
	callback := func(s *settings) func(PinEvent) {
		if gained {
			return s.onPin
		}
		return s.onUnpin
	}
	e.mu.Lock()
	f, logger := callback(e.sub.defaults), e.sub.defaults.logger
	for _, s := range e.hooks { // the newest that has one
		logger = s.logger
		if own := callback(s); own != nil {
			f = own
		}
	}
	e.mu.Unlock()
	event := a.pin
	logger.Info("jetpull: pin changed", "stream", e.sub.stream, "consumer", e.sub.consumer,
		"group", event.Group, "id", event.ID, "pinned", gained)
	if f != nil {
		e.notices.post(func() { f(event) })
	}
}

// hook lets the pin callbacks and the logger of a call hold until the returned
// function is called.
func (e *engine) hook(s *settings) func() {
	if !s.hooks {
		return func() {}
	}
	e.mu.Lock()
	e.hooks = append(e.hooks, s)
	e.mu.Unlock()
	return func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		for i, h := range e.hooks {
			if h == s {
				e.hooks = append(e.hooks[:i], e.hooks[i+1:]...)
				return
			}
		}
	}
}
