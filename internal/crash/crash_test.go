package crash

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/internal/worker"
)

// bucket is a bucket in memory. With err set each request fails.
type bucket struct {
	jetstream.KeyValue

	mu     sync.Mutex
	err    error
	values map[string]*entry
	last   uint64
	writes int
}

type entry struct {
	jetstream.KeyValueEntry

	value    []byte
	revision uint64
}

func (e *entry) Value() []byte    { return e.value }
func (e *entry) Revision() uint64 { return e.revision }

func (b *bucket) Bucket() string { return "crashes" }

func (b *bucket) Get(_ context.Context, key string) (jetstream.KeyValueEntry, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := b.values[key]; {
	case b.err != nil:
		return nil, b.err
	case e == nil:
		return nil, jetstream.ErrKeyNotFound
	default:
		return e, nil
	}
}

func (b *bucket) Update(_ context.Context, key string, value []byte, revision uint64) (uint64, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err != nil {
		return 0, b.err
	}
	if e := b.values[key]; e == nil && revision > 0 || e != nil && e.revision != revision {
		return 0, jetstream.ErrKeyExists
	}
	b.last++
	b.writes++
	b.values[key] = &entry{value: value, revision: b.last}
	return b.last, nil
}

func (b *bucket) Create(ctx context.Context, key string, value []byte, _ ...jetstream.KVCreateOpt) (uint64, error) {
	return b.Update(ctx, key, value, 0)
}

func (b *bucket) Delete(_ context.Context, key string, _ ...jetstream.KVDeleteOpt) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err == nil {
		delete(b.values, key)
	}
	return b.err
}

// starts has the record of a message say that another process began it so often.
func (b *bucket) starts(seq uint64, n int) {
	b.last++
	b.values[message(seq).key()] = &entry{value: fmt.Appendf(nil, `{"starts":%d,"by":"another"}`, n), revision: b.last}
}

func message(seq uint64) Message { return Message{"S", "C.1", worker.ID{Seq: seq, Stored: 7}} }

func newCounter(most int) (*Counter, *bucket) {
	b := &bucket{values: map[string]*entry{}}
	return &Counter{Most: most, Marks: b}, b
}

// A start is on record until its end.
func TestBegin(t *testing.T) {
	c, b := newCounter(2)
	end, err := c.Begin(t.Context(), message(1))
	require.NoError(t, err)
	require.Len(t, b.values, 1)
	end()
	require.Empty(t, b.values)
}

// A message of which most starts had no end is given up.
func TestStartsWithoutAnEnd(t *testing.T) {
	c, b := newCounter(2)
	b.starts(1, 1)
	end, err := c.Begin(t.Context(), message(1))
	require.NoError(t, err)
	end()
	b.starts(1, 2)
	_, err = c.Begin(t.Context(), message(1))
	refusal, ok := errors.AsType[*worker.Refusal](err)
	require.True(t, ok, "%v", err)
	require.Equal(t, "its process ended 2 times while it was handled", refusal.Reason)
	require.ErrorIs(t, err, worker.ErrFinal)
}

// A process has one message at a time that was begun before and not ended. Others go on beside it.
func TestOneSuspectAtATime(t *testing.T) {
	c, b := newCounter(9)
	other, _ := newCounter(9)
	other.Marks = b
	b.starts(1, 1)
	b.starts(2, 1)
	end, err := c.Begin(t.Context(), message(1))
	require.NoError(t, err)
	_, err = other.Begin(t.Context(), message(2))
	_, waits := errors.AsType[*worker.Wait](err)
	require.True(t, waits, "%v", err)
	innocent, err := c.Begin(t.Context(), message(3))
	require.NoError(t, err)
	innocent()
	end()
	end, err = other.Begin(t.Context(), message(2))
	require.NoError(t, err)
	end()
	require.Empty(t, b.values)
}

// A bucket that cannot be reached, or that another process changes at the same time, is no reason to begin.
func TestABucketThatDoesNotAnswer(t *testing.T) {
	c, b := newCounter(2)
	b.starts(1, 1)
	b.err = errors.New("down")
	_, err := c.Begin(t.Context(), message(1))
	_, waits := errors.AsType[*worker.Wait](err)
	require.True(t, waits, "%v", err)
	require.ErrorContains(t, err, "crashes")
	b.err = nil
	end, err := c.Begin(t.Context(), message(1))
	require.NoError(t, err, "the failure left nothing locked")
	b.err = errors.New("down")
	end() // its record stays
	b.err = nil
	end, err = c.Begin(t.Context(), message(1))
	require.NoError(t, err, "a start of this process is no crash")
	end()
	require.Empty(t, b.values)
}

// A record that others have written and that cannot be read counts nothing, and stops nothing.
func TestRecordsThatCannotBeRead(t *testing.T) {
	for _, value := range []string{"", "not json", `{"starts":-5}`, `{"starts":"x"}`, `[]`} {
		c, b := newCounter(2)
		b.values[message(1).key()] = &entry{value: []byte(value), revision: 1}
		end, err := c.Begin(t.Context(), message(1))
		require.NoError(t, err, value)
		end()
		require.Empty(t, b.values)
	}
}

// A message that was begun before its consumer was reset counts as delivered before.
func TestWasDelivered(t *testing.T) {
	ctx := WithDelivered(t.Context(), 5)
	require.True(t, WasDelivered(ctx, 5, 1))
	require.False(t, WasDelivered(ctx, 6, 1))
	require.True(t, WasDelivered(ctx, 6, 2))
	require.False(t, WasDelivered(t.Context(), 5, 1))
}
