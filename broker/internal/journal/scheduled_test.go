package journal

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/broker/internal/domain"
	"github.com/jetpull/jetpull/test/servertest"
)

func scheduleAt(t testing.TB, s *Store, id string, in time.Duration) {
	t.Helper()
	require.NoError(t, s.Messages.Schedule(t.Context(), domain.Message{ID: id, Channel: "ch"}, time.Now().Add(in)))
}

// broadcastNow schedules a message and waits until the server has broadcast it.
func broadcastNow(t testing.TB, s *Store, id string) domain.Message {
	t.Helper()
	before := s.Index.CountScheduled("ch").Dispatched
	scheduleAt(t, s, id, time.Second)
	require.Eventually(t, func() bool { return s.Index.CountScheduled("ch").Dispatched > before }, 20*time.Second, 5*time.Millisecond)
	m, err := s.Messages.Message(t.Context(), "ch", id)
	require.NoError(t, err)
	return m
}

func statuses(t testing.TB, s *Store) map[string]domain.MessageStatus {
	found := map[string]domain.MessageStatus{}
	for _, status := range []domain.MessageStatus{domain.Pending, domain.Dispatched} {
		refs, err := s.Messages.InOrder(t.Context(), s.Index.ScheduledSeqs("ch", status, domain.Page{Limit: 100}))
		require.NoError(t, err)
		for _, ref := range refs {
			found[ref.ID] = status
		}
	}
	return found
}

// A scheduled message that was broadcast and then pruned is in no list, now and after a restart. Its ID can be scheduled again.
func TestPrunedBroadcastOfASchedule(t *testing.T) {
	dir := t.TempDir()
	s, stop := runOn(t, dir, Config{})
	restart := func() {
		t.Helper()
		stop()
		s, stop = runOn(t, dir, Config{})
	}
	now, later := broadcastNow(t, s, "now"), broadcastNow(t, s, "later")
	prune(t, s, []uint64{now.Seq})
	require.Equal(t, map[string]domain.MessageStatus{"later": domain.Dispatched}, statuses(t, s))
	restart()
	require.Equal(t, map[string]domain.MessageStatus{"later": domain.Dispatched}, statuses(t, s))
	prune(t, s, []uint64{later.Seq})
	require.Equal(t, domain.ScheduledCounts{}, s.Index.CountScheduled("ch"))

	scheduleAt(t, s, "now", time.Hour)
	again := func() {
		t.Helper()
		require.Equal(t, map[string]domain.MessageStatus{"now": domain.Pending}, statuses(t, s))
		require.Equal(t, 1, s.Index.CountScheduled("ch").Pending)
		_, err := s.Messages.Append(t.Context(), domain.Message{ID: "now", Channel: "ch"})
		require.ErrorIs(t, err, domain.ErrDuplicateMessage, "the ID waits for its time")
	}
	again()
	restart()
	again()
	require.NoError(t, s.Messages.CancelScheduled(t.Context(), "ch", "now"))
	appendMessage(t, s, "ch", "now", 0)
	restart()
	require.Empty(t, statuses(t, s))
	require.Equal(t, 1, s.Index.CountMessages("ch"))
	stop()
}

// hangUp is a stream whose client disconnects during a delete: the server deletes the message, and the answer reaches nobody.
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

// A schedule whose client hangs up during its deletion is not listed any more.
func TestCancelScheduledOfAClientThatHangsUp(t *testing.T) {
	s := openStore(t, servertest.RunServer(t))
	scheduleAt(t, s, "m", time.Hour)
	ctx, goAway := context.WithCancel(t.Context())
	s.messageStream = hangUp{s.messageStream, goAway}
	require.NoError(t, s.Messages.CancelScheduled(ctx, "ch", "m"))
	require.Error(t, ctx.Err(), "the client was there until the end")
	require.Empty(t, statuses(t, s))
	require.Equal(t, domain.ScheduledCounts{}, s.Index.CountScheduled("ch"))
	_, err := s.Messages.Scheduled(t.Context(), "ch", "m")
	require.ErrorIs(t, err, domain.ErrNotFound)
	appendMessage(t, s, "ch", "m", 0)
}

// mute is a stream whose server deletes a message and whose answer is lost.
type mute struct{ jetstream.Stream }

func (m mute) DeleteMsg(ctx context.Context, seq uint64) error {
	if err := m.Stream.DeleteMsg(ctx, seq); err != nil {
		return err
	}
	return context.DeadlineExceeded
}

// A cancelled schedule does not block its ID on a node that missed the cancellation: neither the answer to the node's own delete
// nor the notice of another node has to arrive.
func TestScheduleThatIsGoneWithoutNews(t *testing.T) {
	lose := func(t *testing.T, s *Store) {
		t.Helper()
		scheduleAt(t, s, "m", time.Hour)
		stream := s.messageStream
		s.messageStream = mute{stream}
		require.ErrorIs(t, s.Messages.CancelScheduled(t.Context(), "ch", "m"), domain.ErrUnavailable)
		s.messageStream = stream
		_, err := s.Messages.Scheduled(t.Context(), "ch", "m")
		require.ErrorIs(t, err, domain.ErrNotFound)
	}
	t.Run("its ID can be broadcast", func(t *testing.T) {
		s := openStore(t, servertest.RunServer(t))
		lose(t, s)
		m := appendMessage(t, s, "ch", "m", 0)
		require.Positive(t, m.Seq)
		require.Empty(t, statuses(t, s))
	})
	t.Run("whoever cancels it again ends it", func(t *testing.T) {
		s := openStore(t, servertest.RunServer(t))
		lose(t, s)
		require.ErrorIs(t, s.Messages.CancelScheduled(t.Context(), "ch", "m"), domain.ErrNotFound)
		require.Empty(t, statuses(t, s))
		require.Equal(t, domain.ScheduledCounts{}, s.Index.CountScheduled("ch"))
	})
	t.Run("the next start does not have it", func(t *testing.T) {
		dir := t.TempDir()
		s, stop := runOn(t, dir, Config{})
		appendMessage(t, s, "ch", "other", 0)
		lose(t, s)
		stop()
		s, stop = runOn(t, dir, Config{})
		defer stop()
		require.Empty(t, statuses(t, s))
		require.Equal(t, 1, s.Index.CountMessages("ch"))
	})
}

// Both a pending schedule and a broadcast one hold their IDs.
func TestScheduleHoldsItsID(t *testing.T) {
	s := openStore(t, servertest.RunServer(t))
	scheduleAt(t, s, "waits", time.Hour)
	broadcastNow(t, s, "fired")
	for _, id := range []string{"waits", "fired"} {
		_, err := s.Messages.Append(t.Context(), domain.Message{ID: id, Channel: "ch"})
		require.ErrorIs(t, err, domain.ErrDuplicateMessage, id)
	}
	require.ErrorIs(t, s.Messages.CancelScheduled(t.Context(), "ch", "fired"), domain.ErrNotFound)
	require.Equal(t, map[string]domain.MessageStatus{"waits": domain.Pending, "fired": domain.Dispatched}, statuses(t, s))
}

// If several callers, on any nodes, use an ID at the same time for a message or a schedule, exactly one succeeds.
func TestAnIDIsTakenOnce(t *testing.T) {
	srv := servertest.RunServer(t)
	nodes := []*Store{shared(t, srv), shared(t, srv)}
	for round := range 50 {
		id := strconv.Itoa(round)
		var taken atomic.Int64
		var wg sync.WaitGroup
		for i := range 6 {
			wg.Go(func() {
				m := domain.Message{ID: id, Channel: "ch", Payload: []byte("x")}
				var err error
				if s := nodes[i%2]; i%3 == 0 {
					err = s.Messages.Schedule(t.Context(), m, time.Now().Add(time.Hour))
				} else {
					_, err = s.Messages.Append(t.Context(), m)
				}
				if err == nil {
					taken.Add(1)
				} else {
					assert.ErrorIs(t, err, domain.ErrDuplicateMessage)
				}
			})
		}
		wg.Wait()
		require.EqualValues(t, 1, taken.Load(), id)
	}
}

// A writer without an answer repeats a schedule that was already broadcast. There is only one message.
func TestScheduleThatIsOvertakenByItsMessage(t *testing.T) {
	s := openStore(t, servertest.RunServer(t))
	appendMessage(t, s, "ch", "m", 0)
	err := s.Messages.Schedule(t.Context(), domain.Message{ID: "m", Channel: "ch"}, time.Now().Add(time.Hour))
	require.ErrorIs(t, err, domain.ErrDuplicateMessage)
	_, err = s.Messages.Scheduled(t.Context(), "ch", "m")
	require.ErrorIs(t, err, domain.ErrNotFound)
	require.Empty(t, statuses(t, s))
	scheduleAt(t, s, "another", time.Hour)
}

// A node that has not read a schedule of another node does not know what would be lost with the channel, so it deletes nothing.
func TestDeleteOfAChannelWithUnreadSchedules(t *testing.T) {
	srv := servertest.RunServer(t)
	s, other := shared(t, srv), shared(t, srv)
	c, err := s.Directory.Channels.Save(t.Context(), domain.Channel{Stakeholder: domain.Stakeholder{ID: "ch", Name: "ch", Token: "t"}})
	require.NoError(t, err)
	s.stop() // it reads nothing more
	s.running.Wait()
	scheduleAt(t, other, "later", time.Hour)

	soon, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	require.ErrorIs(t, s.Directory.DeleteChannel(soon, c, false), domain.ErrUnavailable)
	_, err = other.Directory.Channels.Refresh(t.Context(), "", "ch")
	require.NoError(t, err)
	require.ErrorIs(t, other.Directory.DeleteChannel(t.Context(), c, false), domain.ErrWaiting)
	_, err = other.Messages.Scheduled(t.Context(), "ch", "later")
	require.NoError(t, err)
}
