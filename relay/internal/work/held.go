package work

import (
	"maps"
	"sync"
	"time"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/relay/internal/machine"
	"github.com/jetpull/jetpull/relay/internal/store"
)

const (
	// heldFor is how long what is known of a message outlives its time, at least, where more than leastSweep are known.
	heldFor    = time.Hour
	leastSweep = 1000
)

// inWork is what a lane knows of the messages that wait for their next try, or are in work. One entry of a message is in work at a
// time.
type inWork struct {
	mu      sync.Mutex
	held    map[string]*held
	sweepAt int // as many as this
}

// held is what a lane knows of a message beside its record.
type held struct {
	v    store.Versioned
	busy bool
	due  time.Time // not before; zero: not known
	safe time.Time // when a POST of an unknown outcome is over; zero: not known
	asks int
	// heard is what became of the attempt that began at heardOf, by the record; it may not be written down yet.
	heard   machine.Event
	heardOf time.Time
}

// hear notes what became of an attempt before that is written down: the store may be away, and what is known need not be
// found out again.
func (h *held) hear(next *machine.Record, event machine.Event) {
	h.heard, h.heardOf = event, next.SentAt
}

// later has a message handled again after a pause, and not before.
func (h *held) later(d time.Duration, err error) error {
	h.due = time.Now().Add(d)
	return jetpull.Retry(d, err)
}

func (w *inWork) started() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.held, w.sweepAt = map[string]*held{}, leastSweep
}

func heldKey(e *store.Entry) string { return e.Source + "\x00" + e.ID }

// take takes an entry into work, with the latest record that is known; false: another entry of its message is in work.
func (w *inWork) take(e *store.Entry) (*held, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	key := heldKey(e)
	h := w.held[key]
	if h == nil {
		h = &held{}
		w.held[key] = h
		if len(w.held) >= w.sweepAt {
			w.sweepLocked()
		}
	}
	if h.busy {
		return nil, false
	}
	h.busy = true
	if h.v.Revision > e.Revision {
		e.Versioned = h.v
	}
	return h, true
}

// sweepLocked forgets the messages that are not delivered again, because their time to live is over. Of one that is, the record says
// enough.
func (w *inWork) sweepLocked() {
	maps.DeleteFunc(w.held, func(_ string, h *held) bool {
		return !h.busy && time.Since(h.due) > heldFor && time.Since(h.safe) > heldFor
	})
	w.sweepAt = max(leastSweep, 2*len(w.held))
}

// letGo ends the work on an entry. A message that is settled is forgotten.
func (w *inWork) letGo(e *store.Entry, h *held, settled bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	h.busy, h.v = false, e.Versioned
	if key := heldKey(e); settled && w.held[key] == h {
		delete(w.held, key)
	}
}
