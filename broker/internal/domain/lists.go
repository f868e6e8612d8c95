package domain

import "time"

// Page says which part of a list is asked for. Lists run from the newest to
// the oldest. At most one of After and Before is set; a zero Page is the first.
type Page struct {
	// After asks for what comes after this position, on the older side.
	After *Position
	// Before asks for what comes just before this position, on the newer side.
	Before *Position
	// Limit is the number of items, at least 1.
	Limit int
}

// Position is a place in a list.
type Position struct {
	At  int64  // the item's time or number, by which the list is ordered
	Seq uint64 // tells items of the same At apart
}

// MessageRef is an entry of a list of messages.
type MessageRef struct {
	ID  string
	Seq uint64
}

// StatusCount tells how many jobs of a consumer are in a state.
type StatusCount struct {
	Status JobStatus
	Count  int
	Oldest time.Time // when the first of them got into it
	Newest time.Time // when the last of them got into it
}

// Backlog is what a consumer has to do.
type Backlog struct {
	Consumer               Consumer
	Queued, Inflight, Dead int
	// Oldest is when the oldest message was received that is not worked off; zero: there is none.
	Oldest time.Time
}

// ScheduledCounts tells about the scheduled messages of a channel.
type ScheduledCounts struct {
	Pending    int
	Dispatched int
	Next       time.Time // when the next one is broadcast, zero if there is none
}

// Ownership is told which shards are this node's to dispatch. Gained and Lost of one
// shard are called one after the other.
type Ownership struct {
	// Gained is called when a shard has become this node's, or is so again after a
	// moment in which that was not certain. What others have recorded is known here.
	Gained func(shard int)
	// Lost is called when another node is to dispatch, which waits for it a moment.
	Lost func(shard int)
}
