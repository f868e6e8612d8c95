package work

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/broker/internal/domain"
	"github.com/jetpull/jetpull/broker/internal/jobindex"
)

// testRules are the defaults of the configuration.
var testRules = Rules{
	DispatchRules: DispatchRules{
		MaxWorkers: 200, Concurrency: 32, MaxRetry: 5, RationalDelay: 2 * time.Second, Backoff: domain.Backoff{5 * time.Second, 30 * time.Second},
		Recovery: true,
	},
	CallbackRules: CallbackRules{Timeout: 30 * time.Second, TokenHeader: "X-Broker-Consumer-Token"},
}

// memoryStore has the jobs of one consumer, and messages of which some cannot be read.
type memoryStore struct {
	Messages   // other methods are not called
	mu         sync.Mutex
	jobs       map[domain.JobID]domain.Job
	unreadable map[uint64]error
	gone       map[uint64]bool
	index      *jobindex.Index
	down       error                    // returned by Ready, Recordable and Refresh
	refusing   error                    // returned by PutJob
	slow       map[uint64]chan struct{} // what PutJob of a job waits for
	owned      atomic.Bool
	consumer   domain.Consumer
	kept       int // attempts
}

// stored is the store of a broker in tests.
type stored interface {
	Messages
	Records
	Shards
	Health
	known() *jobindex.Index
	RefreshConsumer(ctx context.Context, channel, id string) (domain.Consumer, error)
	SaveConsumer(ctx context.Context, c domain.Consumer) (domain.Consumer, error)
}

// settings are the consumers of a store.
type settings struct{ stored }

func (s settings) Refresh(ctx context.Context, channel, id string) (domain.Consumer, error) {
	return s.RefreshConsumer(ctx, channel, id)
}

func (s settings) Put(ctx context.Context, c domain.Consumer) (domain.Consumer, error) {
	if now, err := s.RefreshConsumer(ctx, c.Channel, c.ID); err != nil || reflect.DeepEqual(now, c) {
		return now, err
	}
	return s.SaveConsumer(ctx, c)
}

// partsOf returns the parts of a broker that uses one store for its jobs.
func partsOf(s stored) Parts {
	return Parts{
		Settings: settings{s}, Messages: s, Records: s, Index: s.known(), Shards: s, Health: s, Rules: testRules,
		Log: slog.New(slog.DiscardHandler), Full: func() error { return nil }, Permitted: func() error { return nil },
		Usage: func(context.Context) (Usage, error) { return Usage{}, domain.ErrUnavailable },
	}
}

func newMemoryStore(n int) *memoryStore {
	s := &memoryStore{
		jobs: map[domain.JobID]domain.Job{}, unreadable: map[uint64]error{}, gone: map[uint64]bool{}, index: jobindex.New(),
		consumer: pushed,
	}
	for i := range n {
		id := domain.JobID{Seq: uint64(i + 1), Consumer: 1}
		s.jobs[id] = domain.Job{ID: id, Status: domain.Queued}
		s.index.AddMessage("ch", jobindex.Entry{Seq: id.Seq, At: 1}, "")
	}
	s.index.PutConsumer("ch", s.consumer)
	return s
}

func (s *memoryStore) Ready() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.down
}

func (s *memoryStore) known() *jobindex.Index { return s.index }
func (s *memoryStore) Shards() int            { return 1 }
func (s *memoryStore) Shard(string) int       { return 0 }
func (s *memoryStore) Recordable() error      { return s.Ready() }

func (s *memoryStore) Own(ctx context.Context, _, _ func(int)) { <-ctx.Done() }

func (s *memoryStore) AttemptAt(context.Context, domain.JobID, int) (domain.Attempt, error) {
	return domain.Attempt{}, domain.ErrNotFound
}

func (s *memoryStore) Complete(context.Context, []domain.Job) error { return nil }

func (s *memoryStore) KeepAttempt(context.Context, domain.JobID, domain.Attempt) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kept++
	return nil
}

func (s *memoryStore) Owns(int) bool { return s.owned.Load() }

func (s *memoryStore) RefreshConsumer(_ context.Context, _, id string) (domain.Consumer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if id != s.consumer.ID {
		return domain.Consumer{}, domain.ErrNotFound
	}
	return s.consumer, nil
}

func (s *memoryStore) SaveConsumer(_ context.Context, c domain.Consumer) (domain.Consumer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.Revision != s.consumer.Revision {
		return c, domain.ErrConflict
	}
	c.Revision++
	s.consumer = c
	return c, nil
}

func (s *memoryStore) Job(_ context.Context, id domain.JobID) (domain.Job, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.jobs[id], nil
}

func (s *memoryStore) Refresh(ctx context.Context, id domain.JobID) (domain.Job, error) {
	if err := s.Ready(); err != nil {
		return domain.Job{}, err
	}
	return s.Job(ctx, id)
}

func (s *memoryStore) PutJob(ctx context.Context, j domain.Job) (domain.Job, error) {
	s.mu.Lock()
	slow := s.slow[j.ID.Seq]
	s.mu.Unlock()
	if slow != nil {
		select {
		case <-slow:
		case <-ctx.Done():
			return j, context.Cause(ctx)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.refusing != nil:
		return j, s.refusing
	case s.jobs[j.ID].Revision != j.Revision:
		return j, domain.ErrConflict
	}
	j.Revision++
	s.jobs[j.ID] = j
	s.index.PutRecord(j)
	return j, nil
}

func (s *memoryStore) Append(_ context.Context, m domain.Message) (domain.Message, error) {
	return m, nil
}

func (s *memoryStore) Schedule(context.Context, domain.Message, time.Time) error { return nil }
func (s *memoryStore) MaxPayload() int                                           { return 1 << 20 }
func (s *memoryStore) Prune(context.Context, []uint64) (int, error)              { return 0, nil }

func (s *memoryStore) InOrder(_ context.Context, seqs []uint64) (found []domain.Message, failed error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, seq := range seqs {
		switch {
		case errors.Is(s.unreadable[seq], domain.ErrUnavailable):
			failed = s.unreadable[seq]
		case s.unreadable[seq] != nil:
			s.index.RemoveMessages("ch", []uint64{seq})
		case !s.gone[seq]:
			found = append(found, memoryMessage(seq))
		}
	}
	return found, failed
}

func memoryMessage(seq uint64) domain.Message { return domain.Message{Seq: seq, ID: fmt.Sprint(seq)} }

// states returns the states of all jobs, in order.
func (s *memoryStore) states() (states []domain.JobStatus) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for seq := range len(s.jobs) {
		states = append(states, s.jobs[domain.JobID{Seq: uint64(seq + 1), Consumer: 1}].Status)
	}
	return states
}

func claimedIDs(work []Work) (ids []string) {
	for _, w := range work {
		ids = append(ids, w.Message.ID)
	}
	return ids
}

// overtakenStore loses races: every job that Take returns has changed when its claim is stored, and PutJob has updated the index.
type overtakenStore struct {
	*memoryStore
	races int // how many races this node loses
}

func (s *overtakenStore) PutJob(ctx context.Context, j domain.Job) (domain.Job, error) {
	s.mu.Lock()
	if now := s.jobs[j.ID]; s.races > 0 && now.Status == domain.Queued {
		s.races--
		now.Status = domain.Inflight
		now.Revision++
		s.jobs[j.ID] = now
		s.index.PutRecord(now)
	}
	s.mu.Unlock()
	return s.memoryStore.PutJob(ctx, j)
}

// A worker whose node loses the race for every job that it tries gets the next one without a wait.
func TestALostRaceIsNoEmptyQueue(t *testing.T) {
	k := domain.Consumer{Stakeholder: domain.Stakeholder{Number: 1}, Type: domain.Pull}
	s := &overtakenStore{newMemoryStore(7), 6}
	b := New(partsOf(s))
	work, err := b.Jobs.ClaimJobs(t.Context(), k, 2, 0, 0)
	require.NoError(t, err)
	require.Equal(t, []string{"7"}, claimedIDs(work))
	work, err = b.Jobs.ClaimJobs(t.Context(), k, 2, 0, 0)
	require.NoError(t, err)
	require.Empty(t, work, "all are with others")

	s = &overtakenStore{newMemoryStore(1), 0}
	s.refusing = fmt.Errorf("%w, and what is stored cannot be read: %w", domain.ErrConflict, domain.ErrUnavailable)
	_, err = New(partsOf(s)).Jobs.ClaimJobs(t.Context(), k, 2, 0, 0)
	require.ErrorIs(t, err, domain.ErrUnavailable, "it does not go on without an end")
}

// A job whose message cannot be read now is released, and no worker gets it.
func TestClaimsThatCouldNotBeFilledAreReleased(t *testing.T) {
	errBroken := fmt.Errorf("%w: the replica does not answer", domain.ErrUnavailable)
	k := domain.Consumer{Stakeholder: domain.Stakeholder{Number: 1}, Type: domain.Pull}
	open := func(n int) (*memoryStore, *Broker) {
		s := newMemoryStore(n)
		return s, New(partsOf(s))
	}

	t.Run("some", func(t *testing.T) {
		s, b := open(3)
		s.unreadable[2] = errBroken
		work, err := b.Jobs.ClaimJobs(t.Context(), k, 5, 0, 0)
		require.NoError(t, err, "there is work")
		require.Equal(t, []string{"1", "3"}, claimedIDs(work))
		require.Equal(t, []domain.JobStatus{domain.Inflight, domain.Queued, domain.Inflight}, s.states())
		delete(s.unreadable, 2)
		work, err = b.Jobs.ClaimJobs(t.Context(), k, 5, 0, 0)
		require.NoError(t, err)
		require.Equal(t, []string{"2"}, claimedIDs(work))
		require.Zero(t, work[0].Job.Retries, "it was nobody's attempt")
	})

	t.Run("all", func(t *testing.T) {
		s, b := open(2)
		s.unreadable[1], s.unreadable[2] = errBroken, errBroken
		work, err := b.Jobs.ClaimJobs(t.Context(), k, 5, 0, 0)
		require.ErrorIs(t, err, errBroken)
		require.Empty(t, work)
		require.Equal(t, []domain.JobStatus{domain.Queued, domain.Queued}, s.states())
	})

	t.Run("never readable", func(t *testing.T) {
		s, b := open(2)
		s.unreadable[1] = errors.New("no envelope")
		work, err := b.Jobs.ClaimJobs(t.Context(), k, 1, 0, 0)
		require.NoError(t, err)
		require.Equal(t, []string{"2"}, claimedIDs(work))
		require.Equal(t, domain.Inflight, s.states()[1])
		work, err = b.Jobs.QueuedJobs(t.Context(), k, "", 2, 0)
		require.NoError(t, err)
		require.Empty(t, work)
	})

	t.Run("gone for good", func(t *testing.T) {
		s, b := open(2)
		s.gone[1] = true
		s.unreadable[2] = errBroken
		_, err := b.Jobs.ClaimJobs(t.Context(), k, 5, 0, 0)
		require.ErrorIs(t, err, errBroken)
		require.Equal(t, domain.Queued, s.states()[1])
	})
}

// The answer that a job was removed waits until the removal is on disk.
func TestARemovedJobIsReportedWhenThatIsStored(t *testing.T) {
	s := newMemoryStore(1)
	b := New(partsOf(s))
	id := domain.JobID{Seq: 1, Consumer: 1}
	s.jobs[id] = domain.Job{ID: id, Status: domain.Removed, Revision: 2}
	require.ErrorIs(t, b.Jobs.RemoveJob(t.Context(), id), domain.ErrNotFound)
	s.down = errors.New("the disk failed")
	require.ErrorIs(t, b.Jobs.RemoveJob(t.Context(), id), s.down)
}
