package jsstore

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/broker"
)

// What a process with its own server had in work when it ended is delivered as
// soon as the next one reads the feed, and what has a record is not read again.
func TestFeedBeginsAtTheFirstMessageWithoutRecord(t *testing.T) {
	dir := t.TempDir()
	s, stop := runOn(t, dir, Config{})
	k := makeConsumer(t, s, "ch", "k", broker.Push)
	var last uint64
	for i := range 10 {
		m, err := s.Append(t.Context(), broker.Message{ID: fmt.Sprint(i), Channel: "ch"})
		require.NoError(t, err)
		last = m.Seq
		if i < 3 || i == 5 {
			_, err = s.PutJob(t.Context(), broker.Job{ID: broker.JobID{Seq: m.Seq, Consumer: k.Number}, Status: broker.Delivered, ChangedAt: time.Now()})
			require.NoError(t, err)
		}
	}
	// What was not seen yet in the stream may be read once more.
	require.NoError(t, s.messagesSeen.wait(t.Context(), last))
	// All are in work, and stay so until the process ends.
	require.ElementsMatch(t, []string{"3", "4", "5", "6", "7", "8", "9"}, readFeed(t, s, k, 7, true))
	stop()
	again, stopAgain := runOn(t, dir, Config{})
	defer stopAgain()
	begin := time.Now()
	require.ElementsMatch(t, []string{"3", "4", "5", "6", "7", "8", "9"}, readFeed(t, again, k, 7, false))
	require.Less(t, time.Since(begin), feedAckWait/2)
	_, err := again.Append(t.Context(), broker.Message{ID: "new", Channel: "ch"})
	require.NoError(t, err)
	require.Equal(t, []string{"new"}, readFeed(t, again, k, 1, false), "within one process the feed goes on")
}

// readFeed reads n deliveries, and settles them unless they are to stay in work.
func readFeed(t *testing.T, s *Store, k broker.Consumer, n int, hold bool) []string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	delivered := make(chan string, n+10)
	ended := make(chan error, 1)
	go func() {
		ended <- s.Feed(ctx, broker.Feed{
			Consumer: k, Window: 16, Drain: 100 * time.Millisecond, Pinned: func(bool) {},
			Deliver: func(work context.Context, d broker.Delivery) error {
				delivered <- d.Message.ID
				if !hold {
					return nil
				}
				<-work.Done()
				return context.Cause(work)
			},
		})
	}()
	var ids []string
	for range n {
		select {
		case id := <-delivered:
			ids = append(ids, id)
		case <-time.After(30 * time.Second):
			t.Fatalf("only %v were delivered", ids)
		}
	}
	cancel()
	if err := <-ended; hold {
		require.ErrorIs(t, err, jetpull.ErrDrainTimeout)
	} else {
		require.NoError(t, err)
	}
	return ids
}
