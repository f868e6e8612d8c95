// Package crash counts how often a process began to handle a message and ended before the handler did.
package crash

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"github.com/jetpull/jetpull/internal/tokens"
	"github.com/jetpull/jetpull/internal/worker"
)

const (
	// afterOutage is how long a message waits if its record could not be read or written.
	afterOutage = time.Second
	// afterSuspect is how long a message waits while the process handles another one that may crash the process.
	afterSuspect = 100 * time.Millisecond
	// answerMost is the timeout of a request to the bucket.
	answerMost = 5 * time.Second
)

var (
	// suspect is held while the process handles a message that an earlier process began and did not end. There is one at a time.
	suspect sync.Mutex
	// self marks the records of this process.
	self = nuid.Next()
)

// Message identifies a message of a consumer.
type Message struct {
	Stream, Consumer string
	worker.ID
}

type deliveredKey struct{}

// WithDelivered returns a context for handlers of a consumer that was reset: its delivery counts start again at 1, even for messages up to seq.
func WithDelivered(ctx context.Context, seq uint64) context.Context {
	return context.WithValue(ctx, deliveredKey{}, seq)
}

// WasDelivered reports whether a message was delivered before. If so, a handler may have begun.
func WasDelivered(ctx context.Context, seq, deliveries uint64) bool {
	upTo, _ := ctx.Value(deliveredKey{}).(uint64)
	return deliveries > 1 || seq <= upTo
}

// key returns the message's key in the bucket.
func (m Message) key() string {
	return fmt.Sprintf("%s.%s.%d.%d", tokens.Subject(m.Stream), tokens.Subject(m.Consumer), m.Seq, m.Stored)
}

// record is the record in the bucket of a message that was begun and not ended.
type record struct {
	Starts int    `json:"starts"`
	By     string `json:"by"` // the process that began it last; empty: its program has ended since
}

// Counter gives up messages that were begun Most times by processes that ended before the handler did.
type Counter struct {
	Most  int
	Marks jetstream.KeyValue
}

// Begin records that a redelivered message begins, and returns the function that records its end. The error is a [worker.Refusal] if the message
// must be given up, and otherwise a [worker.Wait]: a message whose record cannot be read does not begin.
func (c *Counter) Begin(ctx context.Context, m Message) (end func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, answerMost)
	defer cancel()
	key := m.key()
	before, revision, err := c.read(ctx, key)
	if err != nil {
		return nil, &worker.Wait{Until: worker.For(afterOutage), Err: c.problem(key, err)}
	}
	if before.Starts >= c.Most {
		return nil, refusal(before.Starts)
	}
	release := func() {}
	if before.Starts > 0 {
		if !suspect.TryLock() {
			return nil, &worker.Wait{Until: worker.For(afterSuspect)}
		}
		release = suspect.Unlock
	}
	revision, err = c.write(ctx, key, record{Starts: before.Starts + 1, By: self}, revision)
	if err != nil {
		release()
		return nil, &worker.Wait{Until: worker.For(afterOutage), Err: c.problem(key, err)}
	}
	return func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), answerMost)
		defer cancel()
		// The revision protects the record of a process that has begun since. If this fails, the start counts for others until the bucket forgets it.
		_ = c.Marks.Delete(ctx, key, jetstream.LastRevision(revision))
		release()
	}, nil
}

// Died records that the program that handled the message for this process has ended, with cause. It returns the error of the handler: the cause, or a
// [worker.Refusal] if programs and processes have ended Most times.
func (c *Counter) Died(ctx context.Context, m Message, cause error) error {
	ctx, cancel := context.WithTimeout(ctx, answerMost)
	defer cancel()
	key := m.key()
	r, revision, err := c.read(ctx, key)
	if err == nil {
		r.Starts, r.By = r.Starts+1, "" // not self's: the start had no end, although this process continues
		_, err = c.write(ctx, key, r, revision)
	}
	switch {
	case err != nil:
		return errors.Join(cause, c.problem(key, err))
	case r.Starts >= c.Most:
		return refusal(r.Starts)
	}
	return cause
}

func refusal(starts int) error {
	return &worker.Refusal{Reason: fmt.Sprintf("its process ended %d times while it was handled", starts)}
}

func (c *Counter) problem(key string, err error) error {
	return fmt.Errorf("jetpull: MaxCrashes: key %q of bucket %q: %w", key, c.Marks.Bucket(), err)
}

// write stores the record of a message over revision, which is 0 if there is none, and returns the new revision.
func (c *Counter) write(ctx context.Context, key string, r record, revision uint64) (uint64, error) {
	value, _ := json.Marshal(r) // cannot fail: there are only a number and a string
	if revision == 0 {
		return c.Marks.Create(ctx, key, value)
	}
	return c.Marks.Update(ctx, key, value, revision)
}

// read returns the record of a message and its revision, which is 0 if there is none. A start of this process does not count: the process still runs.
func (c *Counter) read(ctx context.Context, key string) (r record, revision uint64, err error) {
	e, err := c.Marks.Get(ctx, key)
	switch {
	case errors.Is(err, jetstream.ErrKeyNotFound):
		return r, 0, nil
	case err != nil:
		return r, 0, err
	}
	switch {
	case json.Unmarshal(e.Value(), &r) != nil || r.Starts < 0: // others can write to the bucket; an invalid record counts as none
		r = record{}
	case r.By == self && r.Starts > 0:
		r.Starts--
	}
	return r, e.Revision(), nil
}
