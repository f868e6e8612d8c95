package feed

import (
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// WakeupSubject is the NATS subject of wake-ups; the payload is a partition's ID.
const WakeupSubject = "jetpull.feed.wakeup"

const (
	// wakesMost is how many different partitions are remembered until the engine looks; beyond, it looks at all.
	wakesMost = 1024
	// listenAgain is the pause before the next try to listen.
	listenAgain = time.Second
)

// wakes are the partitions that have changed since the engine looked.
type wakes struct {
	signal chan struct{}

	mu         sync.Mutex
	partitions map[string]struct{}
	all        bool
}

// add notes a partition; "": any may have changed. It does not block.
func (w *wakes) add(partition string) {
	w.mu.Lock()
	switch {
	case partition == "" || len(w.partitions) >= wakesMost:
		w.all = true
	case w.partitions == nil:
		w.partitions = map[string]struct{}{partition: {}}
	default:
		w.partitions[partition] = struct{}{}
	}
	w.mu.Unlock()
	select {
	case w.signal <- struct{}{}:
	default:
	}
}

func (w *wakes) take() (partitions map[string]struct{}, all bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	partitions, all = w.partitions, w.all
	w.partitions, w.all = nil, false
	return partitions, all
}

// woken looks for what has changed: in a partition that is held by another pass, because a retried item is before those
// that were fetched already, and for a lease otherwise.
func (e *engine) woken() {
	partitions, all := e.wakes.take()
	if all {
		e.timers.soon()
		e.timers.sweep = time.Time{}
	}
	for id := range partitions {
		if h := e.held[id]; h != nil {
			h.redo = true
			e.consider(h)
		} else {
			e.timers.soon()
		}
	}
}

// listen starts what brings wake-ups.
func (e *engine) listen() {
	cancel := e.tables.subscribe(func(partition string) {
		e.wakes.add(partition)
		if e.wakeups != nil {
			_ = e.wakeups.Publish(WakeupSubject, []byte(partition)) // a hint; see PublishWakeups
		}
	})
	e.wg.Go(func() {
		<-e.done
		cancel()
	})
	if e.wakeups != nil {
		e.wg.Go(e.listenNATS)
	}
	e.wg.Go(e.listenDatabase)
}

func (e *engine) listenNATS() {
	sub, err := e.wakeups.Subscribe(WakeupSubject, func(m *nats.Msg) { e.wakes.add(string(m.Data)) })
	if err != nil {
		e.log.Warn("feed: no wake-ups by NATS", "error", err)
		return
	}
	<-e.done
	_ = sub.Unsubscribe() // the connection may be closed already
}

// listenDatabase has the database tell, again where the connection broke.
func (e *engine) listenDatabase() {
	for {
		err := e.tables.Listen(e.db, e.wakes.add)
		if err == nil || e.db.Err() != nil {
			return
		}
		e.log.Warn("feed: no wake-ups by LISTEN", "error", firstLine(err), "again", listenAgain)
		e.sleep(e.db, jitter(listenAgain))
	}
}

// hub passes wake-ups on within the process.
type hub struct {
	mu   sync.Mutex
	subs map[*func(string)]struct{}
}

// subscribe has f called for each partition that was changed. f must not block.
func (h *hub) subscribe(f func(partition string)) (cancel func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.subs == nil {
		h.subs = map[*func(string)]struct{}{}
	}
	h.subs[&f] = struct{}{}
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.subs, &f)
	}
}

func (h *hub) send(partition string) {
	h.mu.Lock()
	subs := make([]func(string), 0, len(h.subs))
	for f := range h.subs {
		subs = append(subs, *f)
	}
	h.mu.Unlock()
	for _, f := range subs {
		f(partition)
	}
}
