package work

import (
	"slices"
	"sync"
	"time"

	"github.com/jetpull/jetpull/broker/internal/domain"
)

const (
	// frontKept is how long a caller that does not ask again keeps its place.
	frontKept = 30 * time.Second
	// frontsMost bounds the places in a queue, and the callers that are remembered of it.
	frontsMost = 16
	callerMost = 256
)

// fronts gives the callers that list the jobs of a queue different places to begin at. Workers that list jobs and then start them, as the original's do,
// would otherwise all start the same ones. A caller that asks once begins at the head of the queue, and so does the first of those that ask
// again. It may be used by several goroutines.
type fronts struct {
	mu      sync.Mutex
	callers map[uint32][]caller // by the consumer's number, in the order in which they came
}

// caller is somebody who lists jobs: a connection.
type caller struct {
	name  string
	last  time.Time
	again bool // it asked more than once
}

// place is how many callers are before this one.
func (f *fronts) place(consumer uint32, name string, now time.Time) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.callers == nil {
		f.callers = map[uint32][]caller{}
	}
	known := slices.DeleteFunc(f.callers[consumer], func(c caller) bool { return now.Sub(c.last) > frontKept })
	defer func() { f.callers[consumer] = known }()
	place := 0
	for i, c := range known {
		if c.name == name {
			known[i].last, known[i].again = now, true
			return place % frontsMost
		}
		if c.again {
			place++
		}
	}
	if len(known) < callerMost {
		known = append(known, caller{name: name, last: now})
	}
	return 0
}

// from is up to limit of the jobs at a place, and of those before them where the queue ends. Jobs are the head of the queue, as far as that place needs.
func from(jobs []domain.Job, place, limit int) []domain.Job {
	if len(jobs) == 0 {
		return nil
	}
	begin := place * limit % len(jobs)
	jobs = slices.Concat(jobs[begin:], jobs[:begin])
	return jobs[:min(limit, len(jobs))]
}
