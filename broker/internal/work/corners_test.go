package work

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/broker/internal/domain"
)

// A claim with a long timeout that is over costs no memory until its time has come.
func TestTimersOfClaimsThatAreOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const jobs = 1000
		d := dispatch(t, jobs)
		defer d.stop()
		timers := func() int { d.due.mu.Lock(); defer d.due.mu.Unlock(); return len(d.due.items) }
		k := domain.Consumer{Stakeholder: domain.Stakeholder{Number: 1}, Type: domain.Pull}
		for range jobs {
			work, err := d.ClaimJobs(t.Context(), k, 1, 7*24*time.Hour, 0)
			require.NoError(t, err)
			d.jobChanged(work[0].Job) // what the store tells
			_, err = d.TransitionJob(t.Context(), work[0].Job.ID, domain.Request{Next: domain.Delivered, Claim: work[0].Job.Claim})
			require.NoError(t, err)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Zero(t, timers(), "an hour after the last job was done")
	})
}

// One that goes on ends at its time, and not before.
func TestLongClaimStillExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := dispatch(t, 1)
		defer d.stop()
		k := domain.Consumer{Stakeholder: domain.Stakeholder{Number: 1}, Type: domain.Pull}
		work, err := d.ClaimJobs(t.Context(), k, 1, 2*time.Hour, 0)
		require.NoError(t, err)
		d.jobChanged(work[0].Job)
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		require.Equal(t, domain.Inflight, d.status(1))
		time.Sleep(40 * time.Second)
		synctest.Wait()
		require.Equal(t, domain.Queued, d.status(1))
		require.Equal(t, 1, d.job(1).Retries)
	})
}

type attemptsStore struct {
	*memoryStore
	kept []domain.Attempt
}

func (s *attemptsStore) KeepAttempt(_ context.Context, _ domain.JobID, a domain.Attempt) error {
	s.kept = append(s.kept, a)
	return nil
}

// echo answers with what it was sent, after some other text.
type echo struct{ before int }

func (e echo) Post(_ context.Context, c Callback) (Reply, error) {
	body := strings.Repeat("x", e.before) + strings.Repeat(c.Header["X-Broker-Consumer-Token"][0]+",", 1000)
	return Reply{Code: 500, Body: []byte(body[:min(len(body), c.Keep)])}, errors.New("answered with status 500")
}

// A long token, such as a JWT, that an answer repeats is masked wherever it is.
func TestLongTokenIsMasked(t *testing.T) {
	for _, token := range []string{strings.Repeat("s3cret", 150), "s3cret-of-20-letters"} {
		for _, before := range []int{0, 3500, 3800, 4090} {
			s := &attemptsStore{memoryStore: newMemoryStore(1)}
			b := New(Parts{Store: s, Rules: testRules, Poster: echo{before}})
			c := pushed
			c.Token = token
			done, err := b.callback(t.Context(), c, nil, domain.Message{ID: "m"}, domain.Job{})
			require.Error(t, err)
			b.attempted(t.Context(), c, domain.Job{Status: domain.Queued}, done)
			require.NotContains(t, string(s.kept[0].Body), "s3cret", "after %d bytes", before)
			require.LessOrEqual(t, len(s.kept[0].Body), attemptBody)
		}
	}
}

// replayStore has one replay and a job whose record is not taken.
type replayStore struct {
	*memoryStore
	replay domain.Replay
}

func (s *replayStore) Settled(_ context.Context, _ domain.Replay, from uint64, limit int) (jobs []domain.Job, next uint64) {
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
		b := New(Parts{Store: s, Rules: testRules})
		s.replay = domain.Replay{Consumer: 1, Number: 1, Spec: domain.ReplaySpec{Rate: 10}, State: domain.ReplayRunning, UpTo: 100, Next: 1, Owner: b.id, Count: 20}
		s.refusing = domain.ErrUnavailable // for a moment
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- b.replay(ctx, s.replay) }()
		time.Sleep(250 * time.Millisecond) // the first three were tried
		stop()
		require.Error(t, <-ended)
		require.LessOrEqual(t, s.replay.Next, uint64(1), "it goes on with the first that was not queued; skipped: %d", s.replay.Skipped)
		s.refusing = nil
		require.NoError(t, b.replay(t.Context(), s.replay))
		require.Equal(t, 20, s.replay.Replayed)
		require.Zero(t, s.replay.Skipped)
	})
}

type brokenSigner struct{}

func (*brokenSigner) Sign(map[string][]string, string, time.Time, []byte) { panic("no key") }

// A stored secret that cannot be read (of a later version) does not end the process.
func TestSecretThatCannotBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := dispatch(t, 1)
		defer d.stop()
		d.signer = func(string) (Signer, error) { return &brokenSigner{}, errors.New("not base64") } // as newSigner
		c := pushed
		c.SigningSecret = "?"
		d.consumerChanged(c, false)
		l := d.lane(1)
		l.mu.Lock()
		defer l.mu.Unlock()
		require.Nil(t, l.signer)
	})
}

// slowStore holds up what is saved of a consumer.
type slowStore struct {
	*memoryStore
	gate chan struct{}
}

func (s *slowStore) SaveConsumer(ctx context.Context, c domain.Consumer) (domain.Consumer, error) {
	if s.gate != nil {
		<-s.gate
	}
	return s.memoryStore.SaveConsumer(ctx, c)
}

// A callback that succeeds counts also when it ends while it is written since when callbacks fail.
func TestSuccessDuringAWriteCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const day = 24 * time.Hour
		d := dispatch(t, 0)
		defer d.stop()
		slow := &slowStore{memoryStore: d.store, gate: make(chan struct{})}
		d.Broker.store = slow
		d.rules.PauseAfter = 2 * day
		d.begin()
		now := func() domain.Consumer { c, _ := d.store.RefreshConsumer(t.Context(), "ch", "k"); return c }
		call := func(success bool) { d.lane(1).health(pushed, 0, success, time.Now()); synctest.Wait() }
		call(false)
		time.Sleep(3 * time.Hour)
		call(false) // is being written
		call(true)
		close(slow.gate)
		synctest.Wait()
		d.consumerChanged(now(), false) // the news of the store
		synctest.Wait()
		time.Sleep(3 * day) // nothing is broadcast
		call(false)
		require.False(t, now().Paused(), "one callback has failed")
	})
}

// Whether a callback is a replay is for the broker to say.
func TestProducerForgesNoReplay(t *testing.T) {
	b := New(Parts{Store: newMemoryStore(0), Rules: testRules})
	h := b.callbackHeader(pushed, domain.Message{ID: "m", Headers: map[string]string{"x-broker-replay": "1-1", "X-A": "1"}}, domain.Job{})
	require.NotContains(t, h, "X-Broker-Replay")
	require.Contains(t, h, "X-A")
}

// Each change of a circuit breaker is told, also the one that follows from a resume.
func TestBreakerClosedByResumeIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := dispatch(t, 0)
		defer d.stop()
		d.rules.Breaker = domain.BreakerRules{FailurePercent: 50, MinCallbacks: 1, Window: time.Minute, Open: time.Hour}
		d.begin()
		d.lane(1).health(pushed, 0, false, time.Now())
		require.EqualValues(t, 1, d.counted(t, EventOpened))
		paused := pushed
		paused.Pause = domain.Pause{Reason: domain.PausedByOperator, At: time.Now()}
		d.consumerChanged(paused, false)
		d.consumerChanged(pushed, false)
		require.Equal(t, domain.BreakerClosed, d.Breaker(t.Context(), pushed))
		require.EqualValues(t, 1, d.counted(t, EventClosed))
	})
}
