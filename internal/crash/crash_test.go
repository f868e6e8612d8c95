package crash

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/internal/natstest"
	"github.com/jetpull/jetpull/internal/worker"
)

func message(seq uint64) Message { return Message{"S", "C.1", worker.ID{Seq: seq, Stored: 7}} }

func newCounter(most int) (*Counter, *natstest.Bucket) {
	b := &natstest.Bucket{}
	return &Counter{Most: most, Marks: b}, b
}

// starts stores a record that says how often another process began the message.
func starts(b *natstest.Bucket, seq uint64, n int) {
	b.Set(message(seq).key(), fmt.Sprintf(`{"starts":%d,"by":"another"}`, n))
}

func requireKeys(t *testing.T, b *natstest.Bucket, want int) {
	t.Helper()
	keys, _ := b.Size()
	require.Equal(t, want, keys)
}

// A start is on record until its end.
func TestBegin(t *testing.T) {
	c, b := newCounter(2)
	end, err := c.Begin(t.Context(), message(1))
	require.NoError(t, err)
	requireKeys(t, b, 1)
	end()
	requireKeys(t, b, 0)
}

// A message with Most starts without an end is given up.
func TestStartsWithoutAnEnd(t *testing.T) {
	c, b := newCounter(2)
	starts(b, 1, 1)
	end, err := c.Begin(t.Context(), message(1))
	require.NoError(t, err)
	end()
	starts(b, 1, 2)
	_, err = c.Begin(t.Context(), message(1))
	refusal, ok := errors.AsType[*worker.Refusal](err)
	require.True(t, ok, "%v", err)
	require.Equal(t, "its process ended 2 times while it was handled", refusal.Reason)
	require.ErrorIs(t, err, worker.ErrFinal)
}

// A process handles only one message at a time that was begun before and not ended. Other messages continue.
func TestOneSuspectAtATime(t *testing.T) {
	c, b := newCounter(9)
	other, _ := newCounter(9)
	other.Marks = b
	starts(b, 1, 1)
	starts(b, 2, 1)
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
	requireKeys(t, b, 0)
}

// If the bucket cannot be reached, or another process changes the record at the same time, the message does not begin.
func TestABucketThatDoesNotAnswer(t *testing.T) {
	c, b := newCounter(2)
	down := func() error { return errors.New("down") }
	starts(b, 1, 1)
	b.Before = down
	_, err := c.Begin(t.Context(), message(1))
	_, waits := errors.AsType[*worker.Wait](err)
	require.True(t, waits, "%v", err)
	require.ErrorContains(t, err, `of bucket "bucket": down`)
	b.Before = nil
	end, err := c.Begin(t.Context(), message(1))
	require.NoError(t, err, "the failure left nothing locked")
	b.Before = down
	end() // its record stays
	b.Before = nil
	end, err = c.Begin(t.Context(), message(1))
	require.NoError(t, err, "a start of this process is no crash")
	end()
	requireKeys(t, b, 0)
}

// A record of another program that cannot be decoded counts as none, and stops no message.
func TestRecordsThatCannotBeRead(t *testing.T) {
	for _, value := range []string{"", "not json", `{"starts":-5}`, `{"starts":"x"}`, `[]`} {
		c, b := newCounter(2)
		b.Set(message(1).key(), value)
		end, err := c.Begin(t.Context(), message(1))
		require.NoError(t, err, value)
		end()
		requireKeys(t, b, 0)
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
