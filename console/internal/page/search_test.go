package page

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull"
)

// heavy is a stream of messages of 1 MiB. An answer has 16 of them, as those of a server.
type heavy struct {
	MessageSource
	last   uint64
	served int
}

func (h *heavy) Messages(_ context.Context, _ *jetstream.StreamInfo, from uint64, _ string, n int) (all []*jetstream.RawStreamMsg, err error) {
	for data := make([]byte, 1<<20); len(all) < min(n, 16) && from <= h.last; from++ {
		all = append(all, &jetstream.RawStreamMsg{Sequence: from, Data: data})
	}
	h.served += len(all)
	return all, nil
}

// A search holds a bounded number of bytes at once, and passes each message once, from the newest to the oldest.
func TestSearchHoldsABoundedWindow(t *testing.T) {
	source := &heavy{last: 300}
	info := &jetstream.StreamInfo{State: jetstream.StreamState{FirstSeq: 1, LastSeq: source.last}}
	s := search{source: source, info: info, most: maxScanned, atOnce: letterWindow}
	window, cut, err := s.between(t.Context(), 1, source.last)
	require.NoError(t, err)
	require.True(t, cut)
	require.Empty(t, window)
	require.LessOrEqual(t, source.served, 48, "MiB")

	synctest.Test(t, func(t *testing.T) { // a search takes a bounded time
		want := source.last
		next, looked, err := s.back(t.Context(), source.last, func(m *jetstream.RawStreamMsg) bool {
			require.Equal(t, want, m.Sequence)
			want--
			return true
		})
		require.NoError(t, err)
		require.Zero(t, next)
		require.Equal(t, 300, looked)
	})
}

// The messages of a list do not keep their payloads and headers in memory.
func TestFoundMessagesAreBrief(t *testing.T) {
	source := &heavy{last: 60}
	info := &jetstream.StreamInfo{State: jetstream.StreamState{FirstSeq: 1, LastSeq: source.last}}
	s := search{source: source, info: info, high: source.last, from: source.last, most: maxScanned, atOnce: pageSize}
	s.fits = func(m *jetstream.RawStreamMsg) bool { return len(m.Data) == 1<<20 }
	part, found, _, next := s.list(t.Context(), Request{}, "messages", "message", pageSize)
	require.Empty(t, part.Problem)
	require.Len(t, found, pageSize)
	require.EqualValues(t, 10, next)
	for _, one := range found {
		require.Equal(t, 1<<20, one.size)
		require.LessOrEqual(t, cap(one.Data), 1<<10)
	}
	long := briefly(&jetstream.RawStreamMsg{Header: nats.Header{"X": {"y"}, jetpull.HeaderDeadReason: {strings.Repeat("refused ", 100_000)}}})
	require.Equal(t, 2, long.headers)
	require.Len(t, long.Header.Get(jetpull.HeaderDeadReason), briefHeader)
	require.Empty(t, long.Header.Get("X"))
}
