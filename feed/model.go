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

// The states. An item is Available until it is Complete or Failed. A partition is Failed while its gate has a Failed item and no Available one.
// It is Complete when it has been closed.
const (
	Available Status = "Available"
	Complete  Status = "Complete"
	Failed    Status = "Failed"
)

// Partition is a piece of work that fans out into items.
type Partition struct {
	// ID has at most 255 bytes, no control characters, and no space at either end.
	ID string `json:"id"`
	// Gate is the gate whose items are processed. Items at higher gates wait.
	Gate   int    `json:"gate"`
	Status Status `json:"status"`
	// Owner is the watcher that holds the lease, and Until is the end of the lease by the database's clock. They are empty and zero if no
	// watcher holds it.
	Owner string    `json:"owner,omitempty"`
	Until time.Time `json:"until,omitzero"`
	// Epoch grows with each lease; Version starts at 1 and grows with each write.
	Epoch   int64 `json:"epoch"`
	Version int64 `json:"version"`
	// Sealed reports that the partition accepts no more items.
	Sealed bool `json:"sealed"`
}

// Item is a piece of work in a partition.
type Item struct {
	// ID is unique in the partition. The rules of Partition.ID apply.
	ID, Partition string
	Gate          int
	Status        Status
	// Attempt is the number of attempts of the current step; it is 1 in the first call of a Processor. A step ends with a Response. Errors has
	// the errors of the step's failed attempts, oldest first: the last 50, each cut at 2,048 bytes.
	Attempt int
	Errors  []string
	// Data is the item's content. The feed does not interpret it.
	Data []byte
	// NotBefore is the earliest time at which the item is processed, in the years 1 to 9999. Zero means at once.
	NotBefore time.Time
	// Version starts at 1 and grows with each write.
	Version int64

	step    int64   // number of finished steps; part of the idempotency key
	history *string // the attempts that failed, as JSON
	seq     int64   // order of insertion
	key     string  // the idempotency key that came with a message; otherwise empty
	timer   *int64  // see OpenAfter
}

// IdempotencyKey returns a key that is the same for all attempts of a step, in any watcher, and differs between steps.
func (it Item) IdempotencyKey() string {
	if it.key != "" {
		return it.key
	}
	sum := sha256.Sum256([]byte(it.Partition + "\x00" + it.ID + "\x00" + strconv.FormatInt(it.step, 10)))
	return hex.EncodeToString(sum[:16])
}

// Response is the result of a step of an item.
type Response struct {
	// Gate is the item's next gate. Nil means the same gate, where the item is processed again after the delay of [Requeue]. A lower gate is a
	// permanent error.
	Gate *int `json:"gate"`
	// Done makes the item Complete.
	Done bool `json:"done"`
	// Data replaces the item's data. Nil, null in JSON, leaves it unchanged. It is stored as given, even if it is empty or not JSON. If the database
	// refuses it, because it is over 1,000,000,000 bytes or violates a constraint that an operator added, the attempt fails.
	Data json.RawMessage `json:"data"`
}

// Query selects rows. A zero field selects all.
type Query struct {
	// Partition is the ID of one partition: [Store.Partitions] lists it, and [Store.Items] lists its items.
	Partition string
	Gate      *int
	Status    Status
	// After is the last ID of the previous page. Empty means the first page. For items it needs Partition.
	After string
	// Limit is the maximum number of rows in a page. 0 means 1,000.
	Limit int
}

// Counts are the numbers of items at a gate, by status.
type Counts struct{ Available, Complete, Failed int }
