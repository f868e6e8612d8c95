package domain

import "time"

// Page selects a part of a list. Lists run from the newest to the oldest. At most one of After and Before is set. A zero Page is
// the first page.
type Page struct {
	// After selects the items that follow this position, on the older side.
	After *Position
	// Before selects the items just before this position, on the newer side.
	Before *Position
	// Limit is the number of items, at least 1.
	Limit int
}

// Position is a place in a list.
type Position struct {
	At  int64  // the item's time or number, by which the list is ordered
	Seq uint64 // orders items with the same At
}

// StatusCount is the number of a consumer's jobs in a state.
type StatusCount struct {
	Status JobStatus
	Count  int
	Oldest time.Time // when the first of them entered the state
	Newest time.Time // when the last of them entered the state
}

// Backlog is the outstanding work of a consumer.
type Backlog struct {
	Consumer               Consumer
	Queued, Inflight, Dead int
	// Oldest is the time of receipt of the oldest message with outstanding work, zero if there is none.
	Oldest time.Time
}

// ScheduledCounts counts the scheduled messages of a channel.
type ScheduledCounts struct {
	Pending    int
	Dispatched int
	Next       time.Time // when the next one is broadcast, zero if there is none
}
