package feed

import (
	"time"

	"github.com/jetpull/jetpull/feed/internal/sqlstore"
)

// OpenAt returns an item for [Store.Insert] that keeps a gate closed until a time, also if all below is Complete before. It is at
// gate-1, and no [Processor] gets it: it is Complete when the time has come, by the database's clock. Watchers of older
// versions of this package hand it to their processor, without data.
func OpenAt(gate int, at time.Time) Item {
	return Item{Gate: gate - 1, NotBefore: at, timer: new(int64(0))}
}

// OpenAfter returns an item like that of [OpenAt] that keeps a gate closed for a duration, a year at most, from when a watcher
// first looks at the partition at gate-1. Leave that gate without other items, and the duration begins when all below is Complete.
func OpenAfter(gate int, d time.Duration) Item {
	return Item{Gate: gate - 1, timer: new(int64((d + time.Millisecond - 1) / time.Millisecond))}
}

// elapsed is what becomes of an item of OpenAt or OpenAfter that is due. The first step of one with a duration begins that.
func elapsed(row *sqlstore.Item) sqlstore.Result {
	r := sqlstore.Result{Item: row.ID, Version: row.Version, Gate: row.Gate, Status: sqlstore.Complete, Steps: 1}
	if row.Step == 0 && *row.Timer > 0 {
		r.Status, r.Delay = sqlstore.Available, time.Duration(*row.Timer)*time.Millisecond
	}
	return r
}
