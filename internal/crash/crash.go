// Package crash counts how often a message was begun by a process that ended before it was handled.
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
	// afterOutage is how long a message waits whose record could not be read or written.
	afterOutage = time.Second
	// afterSuspect is how long a message waits while the process handles another one that may end it.
	afterSuspect = 100 * time.Millisecond
	// answerMost is how long the bucket may take to answer.
	answerMost = 5 * time.Second
)

var (
	// suspect is held while the process handles a message that an earlier process began and did not end: one at a time.
	suspect sync.Mutex
	// self marks the records of this process, which has not ended.
	self = nuid.Next()
)

// Message identifies a message of a consumer.
type Message struct {
	Stream, Consumer string
	worker.ID
}

type deliveredKey struct{}

// WithDelivered is the context of handlers of a consumer that was reset: it counts deliveries from 1 again, also of messages up to seq.
func WithDelivered(ctx context.Context, seq uint64) context.Context {
	return context.WithValue(ctx, deliveredKey{}, seq)
}

// WasDelivered reports whether a message was delivered before. It may have begun then.
func WasDelivered(ctx context.Context, seq, deliveries uint64) bool {
	upTo, _ := ctx.Value(deliveredKey{}).(uint64)
	return deliveries > 1 || seq <= upTo
}

// key is the message's key in the bucket.
func (m Message) key() string {
	return fmt.Sprintf("%s.%s.%d.%d", tokens.Subject(m.Stream), tokens.Subject(m.Consumer), m.Seq, m.Stored)
}

// record is a message that was begun and not ended, as the bucket has it.
type record struct {
	Starts int    `json:"starts"`
	By     string `json:"by"` // the process that began it last; empty: its program has ended since
}

// Counter gives up messages that were begun most times by processes that ended.
type Counter struct {
	Most  int
	Marks jetstream.KeyValue
}

// Begin records that a redelivered message begins. It returns the function that records its end; or a [worker.Wait], or a [worker.Refusal] if
// the message is to be given up. A record that cannot be read for now is no reason to begin.
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
		// If it fails, the start counts until this process ends or the bucket forgets it. Another process may have begun the message since.
		_ = c.Marks.Delete(ctx, key, jetstream.LastRevision(revision))
		release()
	}, nil
}

// Died records that a program which handled the message for this process has ended, with cause. It returns the error of the handler: the cause, or a
// [worker.Refusal] if programs and processes have ended most times.
func (c *Counter) Died(ctx context.Context, m Message, cause error) error {
	ctx, cancel := context.WithTimeout(ctx, answerMost)
	defer cancel()
	key := m.key()
	r, revision, err := c.read(ctx, key)
	if err == nil {
		r.Starts, r.By = r.Starts+1, "" // nobody's start: it had no end, though this process goes on
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

// write stores the record of a message over its revision, 0 if there is none, and returns the new revision.
func (c *Counter) write(ctx context.Context, key string, r record, revision uint64) (uint64, error) {
	value, _ := json.Marshal(r) // it cannot fail: there are a number and a string only
	if revision == 0 {
		return c.Marks.Create(ctx, key, value)
	}
	return c.Marks.Update(ctx, key, value, revision)
}

// read returns the record of a message, and its revision: 0 if there is none. A start of this process, which goes on, had an end.
func (c *Counter) read(ctx context.Context, key string) (r record, revision uint64, err error) {
	e, err := c.Marks.Get(ctx, key)
	switch {
	case errors.Is(err, jetstream.ErrKeyNotFound):
		return r, 0, nil
	case err != nil:
		return r, 0, err
	}
	switch {
	case json.Unmarshal(e.Value(), &r) != nil || r.Starts < 0: // others can write to the bucket; such a record counts nothing
		r = record{}
	case r.By == self && r.Starts > 0:
		r.Starts--
	}
	return r, e.Revision(), nil
}
