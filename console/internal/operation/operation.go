// Package operation runs operations on many objects in the console, for systems and objects that have none of their own, and keeps them over a
// restart. It knows neither the objects nor the pages: these add their kinds of operations to a [Runner].
package operation

import (
	"context"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// Operation is an action on many objects that runs in a system. Its counts, times and state have the names of the relay's interface.
type Operation struct {
	// System runs it, and ID is its name there.
	System, ID string
	Kind, By   string
	// A description of the objects that it applies to.
	What string
	// State is running, done, cancelled or failed.
	State                  string
	Matched, Done, Skipped int
	Failed                 int
	Began, Changed         time.Time
	// Notes state what happened to objects that were skipped, and what the operation waits for.
	Notes []string
	// Cancel ends it. Its finished part is not undone.
	Cancel func(ctx context.Context) error `json:"-"`
}

// Ended is how many objects its turn has come to.
func (o Operation) Ended() int { return o.Done + o.Skipped + o.Failed }

// Left is how many objects its turn has not come to.
func (o Operation) Left() int { return max(0, o.Matched-o.Ended()) }

// Running is the state of an operation that has not ended.
const Running = "running"

// Source lists the operations of a system.
type Source interface {
	// System is its name.
	System() string
	Operations(ctx context.Context) ([]Operation, error)
}

// Keep keeps what outlives the process of the console: the log of actions, the operations and the values of charts.
type Keep interface {
	// Read reads the messages of all values whose keys match, such as "log.>".
	Read(ctx context.Context, keys string) (map[string]*jetstream.RawStreamMsg, error)
	// Put and Update are those of a [jetstream.KeyValue].
	Put(ctx context.Context, key string, data []byte) (revision uint64, err error)
	Update(ctx context.Context, key string, data []byte, last uint64) (revision uint64, err error)
}
