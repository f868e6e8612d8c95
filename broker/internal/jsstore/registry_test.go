package jsstore

import (
	"fmt"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/broker/internal/domain"
)

// What a change of one consumer costs does not depend on how many there are: else
// the start is quadratic.
func TestAConsumerAmongManyCostsWhatOneDoes(t *testing.T) {
	const many = 5000
	told := 0
	r := newRegistry(nil, func(domain.Consumer, bool) { told++ })
	revision := uint64(0)
	put := func(i int) {
		revision++
		id := fmt.Sprint(i)
		r.take(consumerKey("ch", id), revision, &stored{ID: id, Channel: "ch", Number: uint32(i + 1)})
	}
	put(0)
	alone := testing.AllocsPerRun(10, func() { put(0) })
	for i := range many {
		put(i)
	}
	require.Less(t, testing.AllocsPerRun(10, func() { put(many / 2) }), alone+10)
	require.Len(t, r.byNumber, many)
	told = 0
	for i := range many {
		revision++
		r.take(consumerKey("ch", fmt.Sprint(i)), revision, nil)
	}
	require.Equal(t, many, told)
	require.Empty(t, r.byNumber)
	require.Empty(t, r.consumers["ch"])
}

// What is remembered of keys that are gone is bounded, however many come and go; news that is older than the end of a key does
// not bring it back.
func TestKeysThatComeAndGo(t *testing.T) {
	r := newRegistry(nil, func(domain.Consumer, bool) {})
	revision := uint64(0)
	key := func(i int) string { return consumerKey("ch", fmt.Sprint(i)) }
	put := func(i int) uint64 {
		revision++
		r.take(key(i), revision, &stored{ID: fmt.Sprint(i), Channel: "ch"})
		return revision
	}
	end := func(i int) {
		revision++
		r.take(key(i), revision, nil)
	}
	put(0)
	end(0)
	lasting := put(0)
	for i := range 5 * keptGone {
		old := put(i + 1)
		end(i + 1)
		r.take(key(i+1), old, &stored{ID: fmt.Sprint(i + 1), Channel: "ch"})
		require.Len(t, r.byNumber, 1, "old news")
	}
	require.LessOrEqual(t, len(r.seen), keptGone+1)
	r.take(key(0), lasting-1, nil)
	require.Len(t, r.consumers["ch"], 1, "old news of a key that is there")
}

// What is refused once and for all is not said to be away.
func TestRegistryErrors(t *testing.T) {
	for _, tt := range []struct{ err, want error }{
		{nats.ErrMaxPayload, domain.ErrTooLarge},
		{fmt.Errorf("put: %w", nats.ErrMaxPayload), domain.ErrTooLarge},
		{&jetstream.APIError{ErrorCode: jetstream.JSErrCodeStreamMessageExceedsMaximum}, domain.ErrTooLarge},
		{&jetstream.APIError{ErrorCode: jetstream.JSErrCodeStreamWrongLastSequence}, domain.ErrConflict},
		{jetstream.ErrKeyExists, domain.ErrConflict},
		{nats.ErrTimeout, domain.ErrUnavailable},
	} {
		require.ErrorIs(t, registryError("k", 5, tt.err), tt.want, tt.err)
	}
}
