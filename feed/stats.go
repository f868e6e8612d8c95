package feed

import "time"

// Stats are what a [Watcher] has done since it was made.
type Stats struct {
	// Running is how many items are begun and not yet saved, Leases how many partitions are held.
	Running, Leases int
	// Attempts are the calls for an item that returned, of which FailedAttempts returned an error; HandlerTime is what
	// they took together.
	Attempts, FailedAttempts int64
	HandlerTime              time.Duration
	// Completed and Failed are the items that were saved as Complete and as Failed.
	Completed, Failed int64
	// Conflicts are the results that were not saved, because the lease was lost or another program wrote the item.
	Conflicts int64
	// LeasesTaken were free. LeasesLost ended by time and went to another watcher. Steals are the partitions that
	// other watchers were asked for; see [Steal].
	LeasesTaken, LeasesLost, Steals int64
	// GatesPassed and GatesBlocked are how often the last item at a gate was Complete, and how often one was Failed.
	GatesPassed, GatesBlocked int64
	// DatabaseErrors are the statements that failed, each of which is tried again.
	DatabaseErrors int64
}

// Stats returns what the watcher has done, in all its Runs. It may be called at any time and asks nobody.
func (w *Watcher) Stats() Stats {
	c := &w.tally
	return Stats{
		Running: int(c.Running.Load()), Leases: int(c.Leases.Load()),
		Attempts: c.Attempts.Load(), FailedAttempts: c.FailedAttempts.Load(), HandlerTime: time.Duration(c.HandlerTime.Load()),
		Completed: c.Completed.Load(), Failed: c.Failed.Load(), Conflicts: c.Conflicts.Load(),
		LeasesTaken: c.LeasesTaken.Load(), LeasesLost: c.LeasesLost.Load(), Steals: c.Steals.Load(),
		GatesPassed: c.GatesPassed.Load(), GatesBlocked: c.GatesBlocked.Load(), DatabaseErrors: c.DatabaseErrors.Load(),
	}
}
