package engine

import (
	"sync/atomic"
	"time"

	"github.com/jetpull/jetpull/feed/internal/sqlstore"
)

// Tally counts what the engines of a watcher do; Stats of package feed documents the fields.
type Tally struct {
	Running, Leases                 atomic.Int64
	Attempts, FailedAttempts        atomic.Int64
	HandlerTime                     atomic.Int64 // nanoseconds
	Completed, Failed, Conflicts    atomic.Int64
	LeasesTaken, LeasesLost, Steals atomic.Int64
	GatesPassed, GatesBlocked       atomic.Int64
	DatabaseErrors                  atomic.Int64
}

func (t *Tally) attempted(took time.Duration, err error) {
	t.Attempts.Add(1)
	t.HandlerTime.Add(int64(took))
	if err != nil {
		t.FailedAttempts.Add(1)
	}
}

func (t *Tally) saved(r *sqlstore.Result, ok bool) {
	switch {
	case !ok:
		t.Conflicts.Add(1)
	case r.Status == sqlstore.Complete:
		t.Completed.Add(1)
	case r.Status == sqlstore.Failed:
		t.Failed.Add(1)
	}
}
