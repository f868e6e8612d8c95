package jsstore

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/broker/internal/domain"
	"github.com/jetpull/jetpull/test/servertest"
)

// Replays take the places of old ones, so that a consumer keeps so many in the bucket and none when it is gone; and to find
// one costs the same, however many there are.
func TestReplaysHavePlaces(t *testing.T) {
	srv := servertest.RunServer(t)
	s, other := openStore(t, srv), openStore(t, srv)
	c := makeConsumer(t, s, "ch", "k", domain.Pull)
	bucket, err := s.js.Stream(t.Context(), "KV_"+s.cfg.registry())
	require.NoError(t, err)
	keys := func() uint64 {
		info, err := bucket.Info(t.Context(), jetstream.WithSubjectFilter("$KV."+s.cfg.registry()+".r.>"))
		require.NoError(t, err)
		return uint64(len(info.State.Subjects))
	}
	const ended = 3 * domain.KeptReplays
	for number := range uint64(ended) {
		r, err := s.Replays.SaveReplay(t.Context(), domain.Replay{Consumer: c.Number, Number: number + 1, State: domain.ReplayRunning})
		require.NoError(t, err)
		require.Equal(t, []domain.Replay{r}, s.Replays.RunningReplays())
		for _, at := range []*Store{s, other} {
			_, err = at.Replays.SaveReplay(t.Context(), domain.Replay{Consumer: c.Number, Number: number + 1})
			require.ErrorIs(t, err, domain.ErrConflict, "it is another's")
		}
		r.State = domain.ReplayDone
		_, err = s.Replays.SaveReplay(t.Context(), r)
		require.NoError(t, err)
		require.Empty(t, s.Replays.RunningReplays())
	}
	require.EqualValues(t, ended, s.Replays.LastReplay(c.Number).Number)
	require.EqualValues(t, domain.KeptReplays, keys())
	_, err = s.Replays.RefreshReplay(t.Context(), c.Number, ended)
	require.NoError(t, err)
	for _, gone := range []uint64{ended - domain.KeptReplays, ended + 1} {
		_, err = s.Replays.RefreshReplay(t.Context(), c.Number, gone)
		require.ErrorIs(t, err, domain.ErrNotFound)
		_, ok := s.Replays.Replay(c.Number, gone)
		require.False(t, ok)
	}
	require.LessOrEqual(t, testing.AllocsPerRun(100, func() { s.Replays.Replay(c.Number, ended) }), 1.0, "its key")

	require.Eventually(t, func() bool { return other.Replays.LastReplay(c.Number).Number == ended }, 5*time.Second, time.Millisecond)
	require.NoError(t, s.Directory.DeleteConsumer(t.Context(), c))
	require.Zero(t, keys())
	require.Zero(t, s.Replays.LastReplay(c.Number))
	require.Eventually(t, func() bool { return other.Replays.LastReplay(c.Number).Number == 0 }, 5*time.Second, time.Millisecond)
}

// A page of what a replay is for waits for no news of records: a node that was cut off while the last ones were deleted gets
// none. What another node has recorded before the replay was asked for is in it all the same, also if this node had not seen the
// message.
func TestPagesOfAReplayWaitForNoNews(t *testing.T) {
	srv := servertest.RunServer(t)
	s, other := shared(t, srv), shared(t, srv)
	c := makeConsumer(t, other, "ch", "k", domain.Pull)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	_, err := s.Directory.Consumer(ctx, "ch", "k") // as the request for a replay does
	require.NoError(t, err)
	const jobs = 60
	replay := domain.Replay{Consumer: c.Number, Spec: domain.ReplaySpec{Status: domain.Dead}}
	for i := range jobs {
		m := appendMessage(t, other, "ch", strconv.Itoa(i), 0)
		_, err := other.Jobs.PutJob(ctx, domain.Job{ID: domain.JobID{Seq: m.Seq, Consumer: c.Number}, Status: domain.Dead, ChangedAt: time.Now()})
		require.NoError(t, err)
		replay.UpTo, err = s.Replays.LastRecord(ctx)
		require.NoError(t, err)
		page, _ := s.Replays.Settled(replay, 1, jobs)
		require.Len(t, page, i+1)
	}
	replay.UpTo++ // was deleted
	count := 0
	for from := uint64(1); from > 0; {
		var page []domain.Job
		page, from = s.Replays.Settled(replay, from, 1)
		count += len(page)
	}
	require.Equal(t, jobs, count)
	require.NoError(t, ctx.Err(), "each page has waited")
}
