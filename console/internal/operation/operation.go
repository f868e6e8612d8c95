// Package operation runs operations on many objects in the console, for systems and objects that have no operations of their own, and keeps them over
// a restart. It does not depend on the objects or the pages, which add their kinds of operations to a [Runner].
package operation

import (
	"context"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// Operation is an action on many objects that runs in a system. Its counts, times and state have the names of the relay's HTTP interface.
type Operation struct {
	// System is the system that runs it, and ID its name there.
	System, ID string
	Kind, By   string
	// A description of the objects to which it applies.
	What string
	// State is running, done, cancelled or failed.
	State                  string
	Matched, Done, Skipped int
	Failed                 int
	Began, Changed         time.Time
	// Notes describe what happened to skipped objects, and what the operation waits for.
	Notes []string
	// Cancel ends the operation. It does not undo the finished part.
	Cancel func(ctx context.Context) error `json:"-"`
}

// Ended returns the number of objects that were processed.
func (o Operation) Ended() int { return o.Done + o.Skipped + o.Failed }

// Left returns the number of objects that were not processed yet.
func (o Operation) Left() int { return max(0, o.Matched-o.Ended()) }

// Running is the state of an operation that has not ended.
const Running = "running"

// Source lists the operations of a system.
type Source interface {
	// System returns the name of the system.
	System() string
	Operations(ctx context.Context) ([]Operation, error)
}

// Keep stores data beyond the end of the console's process: the log of actions, the operations and the values of charts.
type Keep interface {
	// Read returns the messages of all values whose keys match, such as "log.>".
	Read(ctx context.Context, keys string) (map[string]*jetstream.RawStreamMsg, error)
	// Put and Update are like those of a [jetstream.KeyValue].
	Put(ctx context.Context, key string, data []byte) (revision uint64, err error)
	Update(ctx context.Context, key string, data []byte, last uint64) (revision uint64, err error)
}
