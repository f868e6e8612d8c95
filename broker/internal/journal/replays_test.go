package journal

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/broker/internal/domain"
	"github.com/jetpull/jetpull/internal/bulk"
	"github.com/jetpull/jetpull/test/servertest"
)

// A new replay takes the key of an old one. So the bucket has a limited number per consumer, and none after its removal. Finding
// a replay costs the same however many there are.
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
	const ended = 3 * maxReplays
	group := replayGroup(c.Number)
	replay := func(number uint64, state bulk.State) bulk.Operation {
		return bulk.Operation{ID: bulk.ID(group, number), Kind: domain.ReplayKind, Group: group, Number: number, Spec: json.RawMessage("{}"), State: state}
	}
	for number := range uint64(ended) {
		r, err := s.Replays.Put(t.Context(), replay(number+1, bulk.Running))
		require.NoError(t, err)
		require.Contains(t, s.Replays.All(), r)
		for _, at := range []*Store{s, other} {
			_, err = at.Replays.Put(t.Context(), replay(number+1, bulk.Running))
			require.ErrorIs(t, err, domain.ErrConflict, "it is another's")
		}
		r.State = bulk.Done
		_, err = s.Replays.Put(t.Context(), r)
		require.NoError(t, err)
	}
	require.EqualValues(t, maxReplays, keys())
	require.Len(t, s.Replays.In(group), maxReplays)
	_, err = s.Replays.Fresh(t.Context(), bulk.ID(group, ended))
	require.NoError(t, err)
	for _, gone := range []uint64{ended - maxReplays, ended + 1} {
		_, err = s.Replays.Fresh(t.Context(), bulk.ID(group, gone))
		require.ErrorIs(t, err, domain.ErrNotFound)
		_, ok := s.Replays.Cached(bulk.ID(group, gone))
		require.False(t, ok)
	}
	last := bulk.ID(group, ended)
	require.LessOrEqual(t, testing.AllocsPerRun(100, func() { s.Replays.Cached(last) }), 1.0, "its key")

	require.Eventually(t, func() bool {
		_, known := other.Replays.Cached(last)
		return known
	}, 5*time.Second, time.Millisecond)
	require.NoError(t, s.Directory.Consumers.Delete(t.Context(), c))
	require.Zero(t, keys())
	require.Empty(t, s.Replays.In(group))
	require.Eventually(t, func() bool { return len(other.Replays.In(group)) == 0 }, 5*time.Second, time.Millisecond)
}

// The record of a replay that an older build has stored is read, and the replay continues under its key.
func TestReplayOfAnEarlierBuild(t *testing.T) {
	s := openStore(t, servertest.RunServer(t))
	c := makeConsumer(t, s, "ch", "k", domain.Pull)
	kv, err := s.js.KeyValue(t.Context(), s.cfg.registry())
	require.NoError(t, err)
	group := replayGroup(c.Number)
	_, err = kv.Create(t.Context(), "r."+group+".3", fmt.Appendf(nil,
		`{"Channel":"ch","Consumer":%d,"Number":43,"Spec":{"Since":"0001-01-01T00:00:00Z",`+
			`"Until":"0001-01-01T00:00:00Z","Status":1004,"Rate":7},"State":"RUNNING","UpTo":99,"Count":5,"Replayed":3,"Skipped":1,"Next":12,"Owner":"o",`+
			`"CreatedAt":"2026-01-02T03:04:05Z","ChangedAt":"2026-01-02T03:04:06Z"}`, c.Number))
	require.NoError(t, err)
	id := bulk.ID(group, 43)
	require.Eventually(t, func() bool { _, ok := s.Replays.Cached(id); return ok }, 5*time.Second, time.Millisecond)
	r, err := s.Replays.Fresh(t.Context(), id)
	require.NoError(t, err)
	r.Spec = nil
	created := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	require.Equal(t, bulk.Operation{
		ID: id, Kind: domain.ReplayKind, Group: group, Number: 43, Rate: 7, State: bulk.Running, UpTo: 99, Next: 12, Matched: 5, Done: 3, Skipped: 1,
		Owner: "o", CreatedAt: created, ChangedAt: created.Add(time.Second), Revision: r.Revision,
	}, r)
	r.Spec = json.RawMessage("{}")
	saved, err := s.Replays.Put(t.Context(), r)
	require.NoError(t, err)
	require.Equal(t, []bulk.Operation{saved}, s.Replays.In(group))
}

// Paging through a replay does not wait for the feed: a node that was cut off while the last records were deleted gets no news of
// them. Records of other nodes from before the request are included all the same, even if this node had not seen the message.
func TestPagesOfAReplayWaitForNoNews(t *testing.T) {
	srv := servertest.RunServer(t)
	s, other := shared(t, srv), shared(t, srv)
	c := makeConsumer(t, other, "ch", "k", domain.Pull)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	_, err := s.Directory.Consumers.Find(ctx, "ch", "k") // like the request for a replay
	require.NoError(t, err)
	const jobs = 60
	dead, upTo := domain.ReplaySpec{Status: domain.Dead}, uint64(0)
	for i := range jobs {
		m := appendMessage(t, other, "ch", strconv.Itoa(i), 0)
		_, err := other.Jobs.PutJob(ctx, domain.Job{ID: domain.JobID{Seq: m.Seq, Consumer: c.Number}, Status: domain.Dead, ChangedAt: time.Now()})
		require.NoError(t, err)
		upTo, err = s.Replays.LastRecord(ctx)
		require.NoError(t, err)
		page, _ := s.Index.SettledFrom(c.Number, dead, upTo, 1, nil, jobs)
		require.Len(t, page, i+1)
	}
	upTo++ // this record was deleted
	count := 0
	for from := uint64(1); from > 0; {
		var page []domain.Job
		page, from = s.Index.SettledFrom(c.Number, dead, upTo, from, nil, 1)
		count += len(page)
	}
	require.Equal(t, jobs, count)
	require.NoError(t, ctx.Err(), "each page has waited")
}
