package jsstore

import (
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
		r, err := s.SaveReplay(t.Context(), domain.Replay{Consumer: c.Number, Number: number + 1, State: domain.ReplayRunning})
		require.NoError(t, err)
		require.Equal(t, []domain.Replay{r}, s.RunningReplays())
		for _, at := range []*Store{s, other} {
			_, err = at.SaveReplay(t.Context(), domain.Replay{Consumer: c.Number, Number: number + 1})
			require.ErrorIs(t, err, domain.ErrConflict, "it is another's")
		}
		r.State = domain.ReplayDone
		_, err = s.SaveReplay(t.Context(), r)
		require.NoError(t, err)
		require.Empty(t, s.RunningReplays())
	}
	require.EqualValues(t, ended, s.LastReplay(c.Number).Number)
	require.EqualValues(t, domain.KeptReplays, keys())
	_, err = s.RefreshReplay(t.Context(), c.Number, ended)
	require.NoError(t, err)
	for _, gone := range []uint64{ended - domain.KeptReplays, ended + 1} {
		_, err = s.RefreshReplay(t.Context(), c.Number, gone)
		require.ErrorIs(t, err, domain.ErrNotFound)
		_, ok := s.Replay(c.Number, gone)
		require.False(t, ok)
	}
	require.EqualValues(t, 1, testing.AllocsPerRun(100, func() { s.Replay(c.Number, ended) }), "its key")

	require.Eventually(t, func() bool { return other.LastReplay(c.Number).Number == ended }, 5*time.Second, time.Millisecond)
	require.NoError(t, s.DeleteConsumer(t.Context(), c))
	require.Zero(t, keys())
	require.Zero(t, s.LastReplay(c.Number))
	require.Eventually(t, func() bool { return other.LastReplay(c.Number).Number == 0 }, 5*time.Second, time.Millisecond)
}
