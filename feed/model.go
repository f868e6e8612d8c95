package feed

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strconv"
	"time"
)

// Status is the state of an item or a partition.
type Status string

// The states. An item is Available until it is Complete or Failed. A partition is Failed while its gate has a Failed
// item and no Available one, and Complete when it was closed.
const (
	Available Status = "Available"
	Complete  Status = "Complete"
	Failed    Status = "Failed"
)

// Partition is a piece of work that fans out into items.
type Partition struct {
	// ID has at most 255 bytes, no control characters, and no space at either end.
	ID string
	// Gate is the gate whose items are processed; the items above it wait.
	Gate   int
	Status Status
	// Owner is the watcher that has the lease, and Until the lease's end by the database's clock; empty and zero
	// if no watcher has it.
	Owner string
	Until time.Time
	// Epoch grows with each lease; Version starts at 1 and grows with each write.
	Epoch, Version int64
	// Sealed says that no more items will come.
	Sealed bool
}

// Item is a piece of work in a partition.
type Item struct {
	// ID is unique in the partition, under the rules of a partition's.
	ID, Partition string
	Gate          int
	Status        Status
	// Attempt counts the attempts of the present step, and Errors says how those failed, oldest first; of more than
	// 50 the last 50 are kept, each cut at 2,048 bytes. A step ends with a Response; in its first call Attempt is 1.
	Attempt int
	Errors  []string
	// Data is the item's content, which the feed does not look into.
	Data []byte
	// NotBefore is when the item is processed at the earliest, in the years 1 to 9999; zero: at once.
	NotBefore time.Time
	// Version starts at 1 and grows with each write.
	Version int64

	step    int64  // how many steps are over; the idempotency key is made of it
	history string // the attempts that failed, as JSON
	seq     int64  // order of insertion
	key     string // the idempotency key where it came with a message; empty elsewhere
	timer   *int64 // see OpenAfter
}

// IdempotencyKey is the same for all attempts of a step, by whichever watcher, and another for the next step.
func (it Item) IdempotencyKey() string {
	if it.key != "" {
		return it.key
	}
	sum := sha256.Sum256([]byte(it.Partition + "\x00" + it.ID + "\x00" + strconv.FormatInt(it.step, 10)))
	return hex.EncodeToString(sum[:16])
}

// Response is how a [Processor] ends a step of an item.
type Response struct {
	// Gate is the item's next gate; nil: it stays. At the same gate it is processed again after [Requeue]'s delay. A
	// lower gate is a permanent error.
	Gate *int `json:"gate"`
	// Done makes the item Complete.
	Done bool `json:"done"`
	// Data replaces the item's; nil, in JSON null, leaves it. It is stored as given, also empty or not JSON. Data that
	// the database refuses, over 1,000,000,000 bytes or by a constraint of its operator's, is a failed attempt.
	Data json.RawMessage `json:"data"`
}

// Query selects rows. A zero field does not restrict it.
type Query struct {
	Partition string
	Gate      *int
	Status    Status
	// After is the last ID of the page before. For items it needs Partition.
	After string
	// Limit is the most rows of a page; 0: 1,000.
	Limit int
}

// Counts are how many items of a gate have which status.
type Counts struct{ Available, Complete, Failed int }
