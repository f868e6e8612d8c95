package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// The verbs of operations.
const (
	Redrive = "redrive"
	Skip    = "skip"
	Purge   = "purge"
)

// The states of operations.
const (
	Running   = "running"
	Finished  = "done"
	Cancelled = "cancelled"
)

// Operation is something that is done to many failed messages.
type Operation struct {
	ID      string    `json:"id"`
	Verb    string    `json:"verb"`
	Seqs    []uint64  `json:"seqs,omitempty"` // those on the list, or Filter
	Filter  *Filter   `json:"filter,omitempty"`
	Upto    uint64    `json:"upto"` // what failed later is left alone
	Rate    float64   `json:"rate,omitempty"`
	State   string    `json:"state"`
	Matched int       `json:"matched"`
	Done    int       `json:"done"`
	Begun   time.Time `json:"begun"`

	Revision uint64 `json:"-"`
}

func operationKey(id string) string { return "operation." + Token(id) }

// BeginOperation stores an operation and has a worker do it.
func (s *Failed) BeginOperation(ctx context.Context, o Operation) error {
	data, err := json.Marshal(o)
	if err != nil {
		return fmt.Errorf("write operation %s: %w", o.ID, err)
	}
	if _, err := s.state.Create(ctx, operationKey(o.ID), data, jetstream.KeyTTL(failedAge)); err != nil {
		return configError("write", operationKey(o.ID), err)
	}
	_, err = s.publish(ctx, &nats.Msg{Subject: s.subject(Operations, Token(o.ID)), Data: []byte(o.ID)})
	return err
}

// Operation reads an operation.
func (s *Failed) Operation(ctx context.Context, id string) (Operation, error) {
	entry, err := s.state.Get(ctx, operationKey(id))
	switch {
	case errors.Is(err, jetstream.ErrKeyNotFound):
		return Operation{}, fmt.Errorf("%w: operation %q", ErrNotFound, id)
	case err != nil:
		return Operation{}, fmt.Errorf("%w: read operation %q: %w", ErrUnavailable, id, err)
	}
	o := Operation{Revision: entry.Revision()}
	if err := json.Unmarshal(entry.Value(), &o); err != nil {
		return o, fmt.Errorf("read operation %q: %w", id, err)
	}
	return o, nil
}

// PutOperation writes an operation in the place of the one of its revision. ErrConflict: it was changed.
func (s *Failed) PutOperation(ctx context.Context, o Operation) (uint64, error) {
	data, err := json.Marshal(o)
	if err != nil {
		return 0, fmt.Errorf("write operation %s: %w", o.ID, err)
	}
	// Not the bucket's Update, which would keep the operation for ever.
	return s.publish(ctx, &nats.Msg{Subject: "$KV." + s.state.Bucket() + "." + operationKey(o.ID), Data: data},
		jetstream.WithExpectLastSequencePerSubject(o.Revision), jetstream.WithMsgTTL(failedAge))
}

// OperationsFilter is the subject of operations that are to be done.
func (s *Failed) OperationsFilter() string { return s.subject(Operations, "*") }
