package jsstore

import (
	"context"
	"testing"
	"time"

	"github.com/jetpull/jetpull/test/servertest"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/broker"
)

func scheduleAt(t testing.TB, s *Store, id string, in time.Duration) {
	t.Helper()
	require.NoError(t, s.Schedule(t.Context(), broker.Message{ID: id, Channel: "ch"}, time.Now().Add(in)))
}

// broadcastNow schedules a message and waits until the server has broadcast it.
func broadcastNow(t testing.TB, s *Store, id string) broker.Message {
	t.Helper()
	before := s.CountScheduled("ch").Dispatched
	scheduleAt(t, s, id, time.Second)
	require.Eventually(t, func() bool { return s.CountScheduled("ch").Dispatched > before }, 20*time.Second, 5*time.Millisecond)
	m, err := s.Message(t.Context(), "ch", id)
	require.NoError(t, err)
	return m
}

func statuses(s *Store) map[string]broker.ScheduledStatus {
	found := map[string]broker.ScheduledStatus{}
	for _, e := range s.ListScheduled("ch", 0, broker.Page{Limit: 100}) {
		found[e.ID] = e.Status()
	}
	return found
}

// A scheduled message that was broadcast and then pruned is gone from the lists,
// now and after a start, and its ID can be scheduled again.
func TestPrunedBroadcastOfASchedule(t *testing.T) {
	dir := t.TempDir()
	s, stop := runOn(t, dir, Config{})
	restart := func() {
		t.Helper()
		stop()
		s, stop = runOn(t, dir, Config{})
	}
	now, later := broadcastNow(t, s, "now"), broadcastNow(t, s, "later")
	require.NoError(t, s.Prune(t.Context(), []uint64{now.Seq}))
	require.Equal(t, map[string]broker.ScheduledStatus{"later": broker.ScheduledDispatched}, statuses(s))
	restart()
	require.Equal(t, map[string]broker.ScheduledStatus{"later": broker.ScheduledDispatched}, statuses(s))
	require.NoError(t, s.Prune(t.Context(), []uint64{later.Seq}))
	require.Equal(t, broker.ScheduledCounts{}, s.CountScheduled("ch"))

	scheduleAt(t, s, "now", time.Hour)
	again := func() {
		t.Helper()
		require.Equal(t, map[string]broker.ScheduledStatus{"now": broker.ScheduledPending}, statuses(s))
		require.Equal(t, 1, s.CountScheduled("ch").Pending)
		_, err := s.Append(t.Context(), broker.Message{ID: "now", Channel: "ch"})
		require.ErrorIs(t, err, broker.ErrDuplicateMessage, "the ID waits for its time")
	}
	again()
	restart()
	again()
	require.NoError(t, s.CancelScheduled(t.Context(), "ch", "now"))
	appendMessage(t, s, "ch", "now", 0)
	restart()
	require.Empty(t, statuses(s))
	require.Equal(t, 1, s.CountMessages("ch"))
	stop()
}

// News of the schedules of one subject, in every order that nodes may hear it in.
func TestNewsOfSchedules(t *testing.T) {
	const subject = "broker.s.ch.x"
	first := scheduledEntry{seq: 1, id: "x", at: 10}
	fired := scheduledEntry{seq: 2, id: "x", at: 10, dispatchedAt: 11, message: 2}
	second := scheduledEntry{seq: 5, id: "x", at: 50}
	add := func(e scheduledEntry) func(*index) {
		return func(x *index) { x.addScheduled("ch", subject, e) }
	}
	fire := func(x *index) {
		x.scheduleFired("ch", subject, fired)
		x.addMessage("ch", entry{seq: 2, at: 11}, "")
	}
	prune := func(x *index) { x.removeMessages("ch", []uint64{2}) }
	pending := []scheduledEntry{second}
	for name, c := range map[string]struct {
		news []func(*index)
		want []scheduledEntry
	}{
		"fired":                                 {[]func(*index){add(first), fire}, []scheduledEntry{{seq: 1, id: "x", at: 10, dispatchedAt: 11, message: 2}}},
		"fired, told twice":                     {[]func(*index){add(first), fire, fire, add(first)}, []scheduledEntry{{seq: 1, id: "x", at: 10, dispatchedAt: 11, message: 2}}},
		"only the broadcast is left":            {[]func(*index){fire}, []scheduledEntry{fired}},
		"pruned":                                {[]func(*index){add(first), fire, prune}, nil},
		"pruned after a start":                  {[]func(*index){fire, prune}, nil},
		"again after it was pruned":             {[]func(*index){add(first), fire, prune, add(second)}, pending},
		"again, and nobody told of the pruning": {[]func(*index){add(first), fire, add(second)}, pending},
		"again, and the pruning is told late":   {[]func(*index){add(first), fire, add(second), prune}, pending},
		"again, and the broadcast is told late": {[]func(*index){add(first), add(second), fire}, pending},
		"again after a start":                   {[]func(*index){fire, add(second)}, pending},
		"the first is told late":                {[]func(*index){add(second), add(first)}, pending},
		"a later broadcast, its schedule gone": {
			[]func(*index){fire, func(x *index) {
				x.scheduleFired("ch", subject, scheduledEntry{seq: 6, id: "x", at: 50, dispatchedAt: 51, message: 6})
			}, prune},
			[]scheduledEntry{{seq: 6, id: "x", at: 50, dispatchedAt: 51, message: 6}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			x := newIndex()
			for _, news := range c.news {
				news(x)
			}
			var got []scheduledEntry
			for _, e := range x.channel("ch").scheduled {
				e := *e
				e.subject = ""
				got = append(got, e)
			}
			require.Equal(t, c.want, got)
			waiting := uint64(0)
			if len(c.want) > 0 && c.want[0].dispatchedAt == 0 {
				waiting = c.want[0].seq
			}
			require.Equal(t, waiting, x.scheduledNow(subject))
		})
	}
}

// A node hears of its own schedule twice, and it may be cancelled before, between
// and after.
func TestOwnScheduleThatIsCancelled(t *testing.T) {
	const subject = "broker.s.ch.x"
	e := scheduledEntry{seq: 3, id: "x", at: 10}
	var seen progress
	own := func(x *index) { x.addOwnScheduled("ch", subject, e, &seen) }
	stream := func(x *index) { x.addScheduled("ch", subject, e); seen.reach(3) }
	cancelled := func(x *index) { x.removeScheduled("ch", subject, 3, seen.reached()) }
	for name, news := range map[string][]func(*index){
		"own, stream, cancelled": {own, stream, cancelled},
		"own, cancelled, stream": {own, cancelled, stream},
		"cancelled, own, stream": {cancelled, own, stream},
		"cancelled, stream, own": {cancelled, stream, own},
		"stream, cancelled, own": {stream, cancelled, own},
		"stream, own, cancelled": {stream, own, cancelled},
	} {
		t.Run(name, func(t *testing.T) {
			seen = progress{}
			seen.init()
			x := newIndex()
			for _, f := range news {
				f(x)
			}
			require.Empty(t, x.channel("ch").scheduled)
			require.Empty(t, x.pendingAt)
			require.Empty(t, x.cancelled)
		})
	}
}

// hangUp is a stream whose server deletes a message while the client that asked
// for it goes away, so that the answer finds nobody.
type hangUp struct {
	jetstream.Stream
	goAway func()
}

func (h hangUp) DeleteMsg(ctx context.Context, seq uint64) error {
	err := h.Stream.DeleteMsg(context.WithoutCancel(ctx), seq)
	h.goAway()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// A client that hangs up while its schedule is deleted does not leave it listed.
func TestCancelScheduledOfAClientThatHangsUp(t *testing.T) {
	s := openStore(t, servertest.RunServer(t))
	scheduleAt(t, s, "m", time.Hour)
	ctx, goAway := context.WithCancel(t.Context())
	s.messageStream = hangUp{s.messageStream, goAway}
	require.NoError(t, s.CancelScheduled(ctx, "ch", "m"))
	require.Error(t, ctx.Err(), "the client was there until the end")
	require.Empty(t, statuses(s))
	require.Equal(t, broker.ScheduledCounts{}, s.CountScheduled("ch"))
	_, err := s.Scheduled(t.Context(), "ch", "m")
	require.ErrorIs(t, err, broker.ErrNotFound)
	appendMessage(t, s, "ch", "m", 0)
}

// mute is a stream whose server deletes a message while its answer is lost.
type mute struct{ jetstream.Stream }

func (m mute) DeleteMsg(ctx context.Context, seq uint64) error {
	if err := m.Stream.DeleteMsg(ctx, seq); err != nil {
		return err
	}
	return context.DeadlineExceeded
}

// A cancelled schedule that this node was not told of is in nobody's way: neither
// the answer to its own delete nor the notice of another node has to arrive.
func TestScheduleThatIsGoneWithoutNews(t *testing.T) {
	lose := func(t *testing.T, s *Store) {
		t.Helper()
		scheduleAt(t, s, "m", time.Hour)
		whole := s.messageStream
		s.messageStream = mute{whole}
		require.ErrorIs(t, s.CancelScheduled(t.Context(), "ch", "m"), broker.ErrUnavailable)
		s.messageStream = whole
		_, err := s.Scheduled(t.Context(), "ch", "m")
		require.ErrorIs(t, err, broker.ErrNotFound)
	}
	t.Run("its ID can be broadcast", func(t *testing.T) {
		s := openStore(t, servertest.RunServer(t))
		lose(t, s)
		m := appendMessage(t, s, "ch", "m", 0)
		require.Positive(t, m.Seq)
		require.Empty(t, statuses(s))
	})
	t.Run("whoever cancels it again ends it", func(t *testing.T) {
		s := openStore(t, servertest.RunServer(t))
		lose(t, s)
		require.ErrorIs(t, s.CancelScheduled(t.Context(), "ch", "m"), broker.ErrNotFound)
		require.Empty(t, statuses(s))
		require.Equal(t, broker.ScheduledCounts{}, s.CountScheduled("ch"))
	})
	t.Run("the next start does not have it", func(t *testing.T) {
		dir := t.TempDir()
		s, stop := runOn(t, dir, Config{})
		appendMessage(t, s, "ch", "other", 0)
		lose(t, s)
		stop()
		s, stop = runOn(t, dir, Config{})
		defer stop()
		require.Empty(t, statuses(s))
		require.Equal(t, 1, s.CountMessages("ch"))
	})
}

// A schedule that waits, and one that was broadcast, hold their IDs.
func TestScheduleHoldsItsID(t *testing.T) {
	s := openStore(t, servertest.RunServer(t))
	scheduleAt(t, s, "waits", time.Hour)
	broadcastNow(t, s, "fired")
	for _, id := range []string{"waits", "fired"} {
		_, err := s.Append(t.Context(), broker.Message{ID: id, Channel: "ch"})
		require.ErrorIs(t, err, broker.ErrDuplicateMessage, id)
	}
	require.ErrorIs(t, s.CancelScheduled(t.Context(), "ch", "fired"), broker.ErrNotFound)
	require.Equal(t, map[string]broker.ScheduledStatus{"waits": broker.ScheduledPending, "fired": broker.ScheduledDispatched}, statuses(s))
}

// overtaken is a stream in which something happens right after a look at a subject.
type overtaken struct {
	jetstream.Stream
	then func()
}

func (o overtaken) GetLastMsgForSubject(ctx context.Context, subject string) (*jetstream.RawStreamMsg, error) {
	raw, err := o.Stream.GetLastMsgForSubject(ctx, subject)
	o.then()
	return raw, err
}

// A message that is stored while its ID is scheduled, or a schedule that was
// broadcast before its writer, who had no answer, tries again, is the only one.
func TestScheduleThatIsOvertakenByItsMessage(t *testing.T) {
	s := openStore(t, servertest.RunServer(t))
	whole := s.messageStream
	s.messageStream = overtaken{whole, func() { appendMessage(t, s, "ch", "m", 0) }}
	err := s.Schedule(t.Context(), broker.Message{ID: "m", Channel: "ch"}, time.Now().Add(time.Hour))
	require.ErrorIs(t, err, broker.ErrDuplicateMessage)
	s.messageStream = whole
	_, err = s.Scheduled(t.Context(), "ch", "m")
	require.ErrorIs(t, err, broker.ErrNotFound)
	require.Empty(t, statuses(s))
	scheduleAt(t, s, "another", time.Hour)
}
