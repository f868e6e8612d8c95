package work

import (
	"context"
	"encoding/json"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/broker/internal/domain"
	"github.com/jetpull/jetpull/internal/bulk"
)

// replayStore has one replay and a job whose record the store refuses.
type replayStore struct {
	*memoryStore
	replay bulk.Operation
}

func (s *replayStore) LastRecord(context.Context) (uint64, error) { return 100, nil }

func (s *replayStore) Cached(string) (bulk.Operation, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.replay, true
}

func (s *replayStore) Fresh(context.Context, string) (bulk.Operation, error) {
	r, _ := s.Cached("")
	return r, nil
}

func (s *replayStore) In(string) []bulk.Operation { return s.All() }

func (s *replayStore) All() []bulk.Operation {
	r, _ := s.Cached("")
	return []bulk.Operation{r}
}

func (s *replayStore) Put(_ context.Context, r bulk.Operation) (bulk.Operation, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.replay = r
	return r, nil
}

// A job that could not be queued before the process stops is queued by the next process.
func TestReplayThatIsStoppedSkipsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &replayStore{memoryStore: newMemoryStore(20)}
		for id, j := range s.jobs {
			j.Status, j.Retries, j.Revision = domain.Dead, 5, id.Seq
			s.jobs[id] = j
			s.index.PutRecord(j)
		}
		parts := partsOf(s.memoryStore)
		parts.Replays = s
		s.replay = bulk.Operation{
			ID: "1-1", Kind: domain.ReplayKind, Group: "1", Number: 1, Spec: json.RawMessage("{}"), Rate: 10, State: bulk.Running, UpTo: 100, Next: 1,
			Matched: 20,
		}
		s.refusing = domain.ErrUnavailable // temporarily
		run := func(d time.Duration) {
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan struct{})
			go func() { defer close(ended); New(parts).Replays.Operations.Run(ctx) }()
			time.Sleep(d)
			stop()
			<-ended
		}
		run(250 * time.Millisecond) // the first jobs were tried
		require.LessOrEqual(t, s.replay.Next, uint64(1), "it goes on with the first that was not queued; skipped: %d", s.replay.Skipped)
		s.refusing = nil
		run(10 * time.Second)
		require.Equal(t, bulk.Done, s.replay.State)
		require.Equal(t, 20, s.replay.Done)
		require.Zero(t, s.replay.Skipped)
	})
}
