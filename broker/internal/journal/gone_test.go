package journal

import (
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/broker/internal/domain"
	"github.com/jetpull/jetpull/internal/natstest"
	"github.com/jetpull/jetpull/test/servertest"
)

// During an outage a node misses that another node has settled a job and pruned its message. When the first node takes the job,
// it learns that the message is gone and drops the job. Otherwise the job would block its queue until the node is restarted.
func TestPrunedInAnOutage(t *testing.T) {
	srv := servertest.RunServer(t)
	proxy := natstest.NewProxy(t, srv.URL())
	a := shared(t, srv)
	b, err := openAs(t.Context(), srv.JetStream(t, natstest.Connect(t, proxy.URL())), Config{Shared: true})
	require.NoError(t, err)
	t.Cleanup(b.Close)
	k := makeConsumer(t, a, "ch", "k", domain.Pull)
	tried, fresh := appendMessage(t, a, "ch", "tried", 0), appendMessage(t, a, "ch", "fresh", 0)
	put := func(s *Store, seq uint64, status domain.JobStatus) error {
		job, err := s.Jobs.Job(t.Context(), domain.JobID{Seq: seq, Consumer: k.Number})
		if err != nil {
			return err
		}
		job.Status, job.ChangedAt = status, time.Now()
		_, err = s.Jobs.PutJob(t.Context(), job)
		return err
	}
	require.NoError(t, put(a, tried.Seq, domain.Inflight))
	require.NoError(t, put(a, tried.Seq, domain.Queued))
	require.Eventually(t, func() bool { return b.jobsSeen.Reached() >= 2 && len(b.Index.Queue.Queued(k.Number, 5)) == 2 }, 10*time.Second, time.Millisecond)

	proxy.Refuse(true)
	proxy.Cut()
	require.Eventually(t, func() bool { return b.Ready() != nil }, 10*time.Second, time.Millisecond)
	for _, m := range []domain.Message{tried, fresh} {
		require.NoError(t, put(a, m.Seq, domain.Delivered))
	}
	prune(t, a, []uint64{tried.Seq, fresh.Seq})
	proxy.Refuse(false)
	require.Eventually(t, func() bool { return b.Ready() == nil }, 20*time.Second, 10*time.Millisecond)
	require.Len(t, b.Index.Queue.Queued(k.Number, 5), 2, "the node knows already: this test shows nothing")

	// One job's record is gone, and the other's was never known here.
	require.ErrorIs(t, put(b, tried.Seq, domain.Inflight), domain.ErrConflict)
	_, err = b.Jobs.Job(t.Context(), domain.JobID{Seq: tried.Seq, Consumer: k.Number})
	require.ErrorIs(t, err, domain.ErrNotFound)
	require.NoError(t, put(b, fresh.Seq, domain.Inflight))
	messages, err := b.Messages.InOrder(t.Context(), []uint64{fresh.Seq})
	require.NoError(t, err)
	require.Empty(t, messages)
	require.Empty(t, b.Index.Queue.Queued(k.Number, 5))
	require.Zero(t, b.Index.CountJobs(k.Number)[1].Count, "the claim is forgotten too")
	require.Zero(t, b.Index.CountMessages("ch"))
	require.Eventually(t, func() bool { return len(a.Index.JobsOf("ch", fresh.Seq)) == 0 }, 10*time.Second, time.Millisecond)
	info, err := b.jobStream.Info(t.Context())
	require.NoError(t, err)
	require.Zero(t, info.State.Msgs, "a record is left of a message that is gone")
}

// A caller that gets success for queueing a settled job finds its message, even if the message is being pruned at that moment.
func TestRequeueWhileItIsPruned(t *testing.T) {
	s := openStore(t, servertest.RunServer(t))
	k := makeConsumer(t, s, "ch", "k", domain.Pull)
	const messages = 400
	dead := make([]domain.Job, messages)
	seqs := make([]uint64, messages)
	for i := range dead {
		seqs[i] = appendMessage(t, s, "ch", strconv.Itoa(i), 0).Seq
		job, err := s.Jobs.PutJob(t.Context(), domain.Job{ID: domain.JobID{Seq: seqs[i], Consumer: k.Number}, Status: domain.Dead, ChangedAt: time.Now()})
		require.NoError(t, err)
		dead[i] = job
	}
	var requeued sync.Map
	var wg sync.WaitGroup
	const callers = 4 // they start where the pruner ends
	for caller := range callers {
		wg.Go(func() {
			for i := messages - 1 - caller; i >= 0; i -= callers {
				job := dead[i]
				job.Status = domain.Queued
				_, err := s.Jobs.PutJob(t.Context(), job)
				if err == nil {
					requeued.Store(job.ID.Seq, true)
				} else if !errors.Is(err, domain.ErrConflict) && !errors.Is(err, domain.ErrUnavailable) { // the record is gone too, or about to go
					assert.ErrorIs(t, err, domain.ErrNotFound)
				}
			}
		})
	}
	_, err := s.Messages.Prune(t.Context(), seqs)
	wg.Wait()
	require.NoError(t, err)
	kept := 0
	for _, seq := range seqs {
		_, err := s.reader.At(t.Context(), s.messageStream, seq)
		if _, answered := requeued.Load(seq); answered {
			require.NoError(t, err, "message %d is gone and its job was queued again", seq)
			kept++
		}
	}
	t.Logf("%d of %d were queued again", kept, messages)
	require.Len(t, s.Index.Queue.Queued(k.Number, messages), kept)
}

// A notice is believed only for messages that the stream has no more. Anybody who may publish in the account can send one.
func TestForgedNoticeOfADeletion(t *testing.T) {
	srv := servertest.RunServer(t, servertest.WithAttackers("broker.x.deleted"))
	a, b := shared(t, srv), shared(t, srv)
	k := makeConsumer(t, a, "ch", "k", domain.Pull)
	var kept []uint64
	for i := range 5 {
		kept = append(kept, appendMessage(t, a, "ch", strconv.Itoa(i), 0).Seq)
	}
	gone := appendMessage(t, a, "ch", "gone", 0).Seq
	later := appendMessage(t, a, "ch", "later", 0).Seq
	require.Eventually(t, func() bool { return len(b.Index.Queue.Queued(k.Number, 10)) == 7 }, 10*time.Second, time.Millisecond)

	attacker := srv.Attacker(t, "broker.x.deleted")
	token := domain.SubjectToken("ch")
	forge := func(token string, seqs ...uint64) {
		t.Helper()
		body, err := json.Marshal(notice{Token: token, Seqs: seqs})
		require.NoError(t, err)
		require.NoError(t, attacker.Publish("broker.x.deleted", body))
		require.NoError(t, attacker.Flush())
	}
	require.NoError(t, a.delete(t.Context(), gone)) // without a notice
	forge(token, kept...)
	forge(token, later, kept[0], later+1, math.MaxUint64)
	forge("unknown", kept...)
	forge(token, slices.Repeat([]uint64{kept[1]}, 100_000)...)
	require.NoError(t, attacker.Publish("broker.x.deleted", []byte("{")))
	require.Len(t, b.Index.Queue.Queued(k.Number, 10), 7)
	forge(token, gone, later) // the first is true
	require.Eventually(t, func() bool { return len(b.Index.Queue.Queued(k.Number, 10)) < 7 }, 10*time.Second, time.Millisecond)
	forge(token, later)
	require.NoError(t, a.delete(t.Context(), later))
	forge(token, later)
	require.Eventually(t, func() bool { return len(b.Index.Queue.Queued(k.Number, 10)) < 6 }, 10*time.Second, time.Millisecond)
	left := b.Index.Queue.Queued(k.Number, 10)
	require.Len(t, left, len(kept))
	for i, j := range left {
		require.Equal(t, kept[i], j.ID.Seq)
	}
	require.Equal(t, len(kept), b.Index.CountMessages("ch"))
}
