package console

import (
	"slices"
	"sync"

	"github.com/jetpull/jetpull/console/internal/view"
)

// maxEntries is how many actions the log holds. Older ones are in the process's log.
const maxEntries = 1000

// actionLog are the last actions.
type actionLog struct {
	mu      sync.Mutex
	last    int
	entries []view.Entry     // oldest first
	keep    func(view.Entry) // writes an entry to where it outlives the process; nil: nowhere
}

func newActionLog() *actionLog { return &actionLog{} }

// add returns the ID of the entry.
func (a *actionLog) add(e view.Entry) int {
	id, keep := a.append(e)
	if keep != nil {
		keep(e)
	}
	return id
}

// append returns how to keep the entry, too: nil leaves that to restore.
func (a *actionLog) append(e view.Entry) (id int, keep func(view.Entry)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.last++
	e.ID = a.last
	if len(a.entries) == maxEntries {
		a.entries = append([]view.Entry(nil), a.entries[1:]...)
	}
	a.entries = append(a.entries, e)
	return e.ID, a.keep
}

// get is the entry of an ID; nil: there is none, or it is too old.
func (a *actionLog) get(id int) *view.Entry {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := range a.entries {
		if a.entries[i].ID == id {
			e := a.entries[i]
			return &e
		}
	}
	return nil
}

// all are the entries, newest first.
func (a *actionLog) all() []view.Entry {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := make([]view.Entry, 0, len(a.entries))
	for i := len(a.entries) - 1; i >= 0; i-- {
		out = append(out, a.entries[i])
	}
	return out
}

// restore puts the entries of earlier processes before those of this one, and has later ones kept. Entries without an ID are shown in the list
// alone.
func (a *actionLog) restore(earlier []view.Entry, keep func(view.Entry)) {
	a.mu.Lock()
	own := a.entries
	a.entries = slices.Concat(earlier[max(0, min(len(earlier), len(earlier)+len(own)-maxEntries)):], own)
	a.keep = keep
	a.mu.Unlock()
	for _, e := range own {
		e.ID = 0 // it is that of this process
		keep(e)
	}
}
