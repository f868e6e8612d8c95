package store

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/relay/internal/machine"
	"github.com/jetpull/jetpull/test/servertest"
)

// A list of records looks at a bounded number of them, returns where to continue, and leaves none out, also behind a large gap.
func TestListIsBounded(t *testing.T) {
	t.Parallel()
	nc := servertest.RunServer(t).Connect(t)
	s, err := Open(t.Context(), nc, Config{Name: "relay", Replicas: 1, Tombstone: time.Hour, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	defer s.Close()
	put := func(id string) {
		data, err := json.Marshal(machine.Record{Source: "a", ID: id})
		require.NoError(t, err)
		_, err = s.js.PublishAsync(s.recordSubject("a", id), data)
		require.NoError(t, err)
	}
	for i := range 5000 {
		put(fmt.Sprint("old-", i))
	}
	for range 3000 { // a gap
		put("busy")
	}
	<-s.js.PublishAsyncComplete()
	for _, want := range []int{1, 5001} {
		var seen []Listed
		calls := 0
		for next, more := uint64(0), true; more; more = next > 0 {
			looked := 0
			var found []Listed
			found, next, err = s.List(t.Context(), next, 100, func(l Listed) bool {
				looked++
				return want > 1 || l.ID == "old-0"
			})
			require.NoError(t, err)
			require.LessOrEqual(t, looked, maxListed+maxStep)
			seen = append(seen, found...)
			calls++
		}
		require.Len(t, seen, want)
		require.Equal(t, "old-0", seen[len(seen)-1].ID)
		require.LessOrEqual(t, calls, 60)
	}
}
