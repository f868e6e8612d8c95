package work

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/broker/internal/domain"
)

// replayStore has one replay and a job whose record is not taken.
type replayStore struct {
	*memoryStore
	domain.Replays // the rest is not called
	replay         domain.Replay
}

func (s *replayStore) Settled(_ domain.Replay, from uint64, limit int) (jobs []domain.Job, next uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for seq := from; seq <= uint64(len(s.jobs)); seq++ {
		if len(jobs) == limit {
			return jobs, seq
		}
		if j := s.jobs[domain.JobID{Seq: seq, Consumer: 1}]; j.Status == domain.Dead {
			jobs = append(jobs, j)
		}
	}
	return jobs, 0
}

func (s *replayStore) Replay(uint32, uint64) (domain.Replay, bool) { return s.replay, true }

func (s *replayStore) SaveReplay(_ context.Context, r domain.Replay) (domain.Replay, error) {
	s.replay = r
	return r, nil
}

// What could not be queued again when the process stops is queued by the next one.
func TestReplayThatIsStoppedSkipsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &replayStore{memoryStore: newMemoryStore(20)}
		for id, j := range s.jobs {
			j.Status, j.Retries = domain.Dead, 5
			s.jobs[id] = j
		}
		parts := partsOf(s)
		parts.Replays = s
		b := New(parts)
		s.replay = domain.Replay{Consumer: 1, Number: 1, Spec: domain.ReplaySpec{Rate: 10}, State: domain.ReplayRunning, UpTo: 100, Next: 1, Owner: b.Replays.id, Count: 20}
		s.refusing = domain.ErrUnavailable // for a moment
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- b.Replays.replay(ctx, s.replay) }()
		time.Sleep(250 * time.Millisecond) // the first three were tried
		stop()
		require.Error(t, <-ended)
		require.LessOrEqual(t, s.replay.Next, uint64(1), "it goes on with the first that was not queued; skipped: %d", s.replay.Skipped)
		s.refusing = nil
		require.NoError(t, b.Replays.replay(t.Context(), s.replay))
		require.Equal(t, 20, s.replay.Replayed)
		require.Zero(t, s.replay.Skipped)
	})
}
