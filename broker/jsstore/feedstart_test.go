package jsstore

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
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

// A store goes from a server of its own to a shared one and back, with the feeds
// that it has: what was not settled is delivered, and the rest goes on.
func TestFeedSurvivesAChangeOfMode(t *testing.T) {
	dir := t.TempDir()
	own, stop := runOn(t, dir, Config{})
	k := makeConsumer(t, own, "ch", "k", broker.Push)
	for i := range 5 {
		m := appendMessage(t, own, "ch", fmt.Sprint(i), 0)
		if i < 2 {
			_, err := own.PutJob(t.Context(), broker.Job{ID: broker.JobID{Seq: m.Seq, Consumer: k.Number}, Status: broker.Delivered, ChangedAt: time.Now()})
			require.NoError(t, err)
		}
		require.NoError(t, own.messagesSeen.wait(t.Context(), m.Seq))
	}
	require.ElementsMatch(t, []string{"2", "3", "4"}, readFeed(t, own, k, 3, false))
	start := feedStart(t, own, k)
	require.Greater(t, start, k.Since+1, "or there is nothing to disagree on")
	stop()

	shared, stop := runOn(t, dir, Config{Shared: true})
	appendMessage(t, shared, "ch", "shared", 0)
	require.Equal(t, []string{"shared"}, readFeed(t, shared, k, 1, false))
	require.Equal(t, start, feedStart(t, shared, k))
	record := func(s *Store, id string) {
		m, err := s.Message(t.Context(), "ch", id)
		require.NoError(t, err)
		_, err = s.PutJob(t.Context(), broker.Job{ID: broker.JobID{Seq: m.Seq, Consumer: k.Number}, Status: broker.Delivered, ChangedAt: time.Now()})
		require.NoError(t, err)
	}
	for _, id := range []string{"2", "3", "4"} {
		record(shared, id)
	}
	stop()

	own, stop = runOn(t, dir, Config{})
	require.Equal(t, []string{"shared"}, readFeed(t, own, k, 1, false), "the first without a record")
	appendMessage(t, own, "ch", "own", 0)
	require.Equal(t, []string{"own"}, readFeed(t, own, k, 1, false))
	stop()

	shared, stop = runOn(t, dir, Config{Shared: true})
	defer stop()
	appendMessage(t, shared, "ch", "shared again", 0)
	require.Equal(t, []string{"shared again"}, readFeed(t, shared, k, 1, false))
}

// A feed that another build made, with a start of its own, is read on as it is.
func TestFeedKeepsTheStartThatItHas(t *testing.T) {
	at := time.Now().Add(-time.Hour)
	for name, start := range map[string]jetstream.ConsumerConfig{
		"all":      {DeliverPolicy: jetstream.DeliverAllPolicy},
		"new":      {DeliverPolicy: jetstream.DeliverNewPolicy},
		"by time":  {DeliverPolicy: jetstream.DeliverByStartTimePolicy, OptStartTime: &at},
		"sequence": {DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: 1},
	} {
		for _, shared := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s shared=%v", name, shared), func(t *testing.T) {
				s, stop := runOn(t, t.TempDir(), Config{Shared: shared})
				defer stop()
				appendMessage(t, s, "ch", "before", 0)
				k := makeConsumer(t, s, "ch", "k", broker.Push)
				cfg := s.feedConfig(broker.Feed{Consumer: k, Window: 16})
				cfg.DeliverPolicy, cfg.OptStartSeq, cfg.OptStartTime = start.DeliverPolicy, start.OptStartSeq, start.OptStartTime
				_, err := s.js.CreateConsumer(t.Context(), s.cfg.messages(), cfg)
				require.NoError(t, err)
				m := appendMessage(t, s, "ch", "m", 0)
				require.NoError(t, s.messagesSeen.wait(t.Context(), m.Seq))
				require.Equal(t, []string{"m"}, readFeed(t, s, k, 1, false), "what was before the consumer is not its own")
				appendMessage(t, s, "ch", "next", 0)
				require.Equal(t, []string{"next"}, readFeed(t, s, k, 1, false))
			})
		}
	}
}

// feedStart is the sequence that a feed was made to begin at.
func feedStart(t *testing.T, s *Store, k broker.Consumer) uint64 {
	t.Helper()
	consumer, err := s.js.Consumer(t.Context(), s.cfg.messages(), feedName(k.Number))
	require.NoError(t, err)
	return consumer.CachedInfo().Config.OptStartSeq
}

// readFeed reads n deliveries, and settles them unless they are to stay in work.
func readFeed(t *testing.T, s *Store, k broker.Consumer, n int, hold bool) []string {
	t.Helper()
	// Who settles is given the time for it; who holds does so until it is over.
	drain := 30 * time.Second
	if hold {
		drain = 100 * time.Millisecond
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	delivered := make(chan string, n+10)
	ended := make(chan error, 1)
	go func() {
		ended <- s.Feed(ctx, broker.Feed{
			Consumer: k, Window: 16, Drain: drain, Pinned: func(bool) {},
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
