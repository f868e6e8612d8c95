package work

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/broker/internal/domain"
	"github.com/jetpull/jetpull/internal/service/webhook"
	"github.com/jetpull/jetpull/internal/service/webhook/breaker"
	"github.com/jetpull/jetpull/internal/service/webhook/gate"
)

// receiver is a Poster that answers at once, or when the test releases the call.
type receiver struct {
	mu      sync.Mutex
	calls   []string // IDs of messages
	running int
	most    int
	fail    error
	hang    map[string]chan struct{} // by ID
	answer  *webhook.Answer
}

func (r *receiver) Exchange(ctx context.Context, call webhook.Request) (*webhook.Answer, error) {
	id := call.Header["X-Broker-Message-Id"][0]
	r.mu.Lock()
	r.calls = append(r.calls, id)
	r.running++
	r.most = max(r.most, r.running)
	hang, fail, answer := r.hang[id], r.fail, r.answer
	r.mu.Unlock()
	defer func() { r.mu.Lock(); r.running--; r.mu.Unlock() }()
	if hang != nil {
		select {
		case <-hang:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	if answer == nil && fail == nil {
		answer = &webhook.Answer{Code: 200}
	}
	return answer, fail
}

func (r *receiver) called() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string(nil), r.calls...)
}

// dispatching runs a lane of one consumer over a store in memory, in virtual time.
type dispatching struct {
	*Broker
	store    *memoryStore
	receiver *receiver
	revision uint64 // of the consumer
	begin    func() // starts dispatching
	stop     func()
}

var pushed = domain.Consumer{Stakeholder: domain.Stakeholder{ID: "k", Number: 1}, Channel: "ch", Type: domain.Push}

func dispatch(t *testing.T, jobs int) *dispatching {
	t.Helper()
	s, r := newMemoryStore(jobs), &receiver{hang: map[string]chan struct{}{}}
	s.owned.Store(true)
	parts := partsOf(s)
	parts.Poster = r
	b := New(parts)
	b.Rules.Concurrency = 1
	d := &dispatching{Broker: b, store: s, receiver: r}
	d.begin = func() {
		b.running.Go(func() { b.Jobs.expireClaims(b.run) })
		b.running.Go(func() { b.Dispatch.dispatch(b.run) })
		synctest.Wait()
	}
	d.stop = sync.OnceFunc(func() {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, b.Close(ctx), context.Canceled)
	})
	return d
}

// change notifies the node of a change of the consumer.
func (d *dispatching) change(c domain.Consumer) {
	d.revision = max(c.Revision, d.revision+1)
	c.Revision = d.revision
	d.store.mu.Lock()
	d.store.consumer = c
	d.store.mu.Unlock()
	d.store.index.PutConsumer("ch", c)
	synctest.Wait()
}

func (d *dispatching) status(seq uint64) domain.JobStatus { return d.job(seq).Status }

func (d *dispatching) job(seq uint64) domain.Job {
	d.store.mu.Lock()
	defer d.store.mu.Unlock()
	return d.store.jobs[domain.JobID{Seq: seq, Consumer: 1}]
}

// Priority applies to all queued jobs, not only to those already in memory.
func TestPriorityIsExact(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const jobs = 1000
		d := dispatch(t, jobs)
		defer d.stop()
		for id, j := range d.store.jobs {
			j.Priority, j.Revision = int(id.Seq)%7, 1
			d.store.jobs[id] = j
			d.store.index.PutRecord(j)
		}
		d.begin()
		var order []string
		for priority := 6; priority >= 0; priority-- {
			for seq := uint64(1); seq <= jobs; seq++ {
				if int(seq)%7 == priority {
					order = append(order, memoryMessage(seq).ID)
				}
			}
		}
		require.Equal(t, order, d.receiver.called())
	})
}

// The outcome of a callback is not recorded if the consumer was deleted meanwhile: the jobs were deleted too, and the record
// would never be found.
func TestCallbackOfADeletedConsumer(t *testing.T) {
	for name, fail := range map[string]error{"success": nil, "failure": errors.New("500")} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := dispatch(t, 1)
				defer d.stop()
				hang := make(chan struct{})
				d.receiver.hang["1"], d.receiver.fail = hang, fail
				d.begin()
				require.Len(t, d.receiver.called(), 1)
				d.store.index.RemoveConsumer(pushed.Number)
				close(hang)
				synctest.Wait()
				require.Zero(t, d.job(1).Revision, "a record")
				require.Zero(t, d.store.kept, "an attempt")
			})
		})
	}
}

// No callback of a deleted consumer begins, not even by a goroutine that has checked before that its lane is open.
func TestNoCallbackAfterItsConsumerIsDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := dispatch(t, 1)
		defer d.stop()
		l := newLane(d.Dispatch, pushed)
		l.close()
		l.wake()
		require.Len(t, d.store.index.Queue.Queued(1, 1), 1)
	})
}

// As many callbacks run as the consumer allows. One that hangs does not block the others.
func TestConcurrencyOfALane(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := dispatch(t, 50)
		defer d.stop()
		d.Rules.Concurrency = 3
		hang := make(chan struct{})
		for _, id := range []string{"1", "2", "3"} {
			d.receiver.hang[id] = hang
		}
		d.begin()
		require.ElementsMatch(t, []string{"1", "2", "3"}, d.receiver.called())
		more := pushed
		more.Concurrency = 4
		d.change(more)
		require.Len(t, d.receiver.called(), 50)
		require.Equal(t, 4, d.receiver.most)
		close(hang)
		synctest.Wait()
		require.Equal(t, domain.Delivered, d.status(1))
	})
}

// Nothing is written when a callback begins. At a hand-over the callbacks in progress are recorded. Their outcomes still count.
func TestHandOverOfACallbackInProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := dispatch(t, 2)
		defer d.stop()
		hang := make(chan struct{})
		d.receiver.hang["1"] = hang
		d.begin()
		require.Zero(t, d.job(1).Revision)
		d.store.owned.Store(false)
		d.Dispatch.lost(0)
		require.Equal(t, domain.Inflight, d.status(1))
		close(hang)
		synctest.Wait()
		require.Equal(t, domain.Delivered, d.status(1))
		require.Zero(t, d.job(1).Retries)
		require.Equal(t, []string{"1"}, d.receiver.called(), "the rest is the other node's")
		d.store.owned.Store(true)
		d.Dispatch.gained(0)
		synctest.Wait()
		require.Equal(t, []string{"1", "2"}, d.receiver.called())
	})
}

// A hand-over waits for an outcome that is being written, because the next node would repeat the callback. The wait is bounded:
// the other callbacks have to be recorded, and the pin released.
func TestHandOverWhileAnOutcomeIsWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := dispatch(t, 2)
		defer d.stop()
		d.Rules.Concurrency = 2
		d.receiver.hang["2"] = make(chan struct{})
		write := make(chan struct{})
		d.store.slow = map[uint64]chan struct{}{1: write}
		d.begin()
		begin := time.Now()
		d.Dispatch.lost(0)
		require.Equal(t, handOverTime, time.Since(begin))
		require.Equal(t, []domain.JobStatus{domain.Queued, domain.Inflight}, d.store.states())
		time.AfterFunc(time.Second, func() { close(write) })
		d.Dispatch.lost(0)
		require.Equal(t, handOverTime+time.Second, time.Since(begin))
		synctest.Wait()
		require.Equal(t, domain.Delivered, d.status(1))
	})
}

// A callback may end while the hand-over of its job is recorded. Its outcome is stored, whichever write is first.
func TestCallbackThatEndsWhileItIsHandedOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := dispatch(t, 1)
		defer d.stop()
		hang, write := make(chan struct{}), make(chan struct{})
		d.receiver.hang["1"], d.store.slow = hang, map[uint64]chan struct{}{1: write}
		d.begin()
		handedOver := make(chan struct{})
		go func() { defer close(handedOver); d.Dispatch.lost(0) }()
		synctest.Wait()
		close(hang)
		synctest.Wait()
		require.Zero(t, d.job(1).Revision)
		close(write)
		<-handedOver
		synctest.Wait()
		require.Equal(t, domain.Delivered, d.status(1))
	})
}

// A delayed job is not given back after a stop.
func TestNothingIsGivenBackAfterAStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := dispatch(t, 1)
		d.store.unreadable[1] = domain.ErrUnavailable
		d.begin()
		d.stop()
		time.Sleep(time.Hour)
		require.Empty(t, d.store.index.Queue.Queued(1, 1))
	})
}

// A callback that is cancelled by a stop does not count as a failure. If another node has taken over, the job waits for the end of its claim.
func TestCallbackThatIsCut(t *testing.T) {
	for name, handedOver := range map[string]bool{"alone": false, "handed over": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := dispatch(t, 1)
				d.receiver.hang["1"] = make(chan struct{})
				d.begin()
				if handedOver {
					d.Dispatch.lost(0)
				}
				d.stop()
				j := d.job(1)
				require.Zero(t, j.Retries)
				if handedOver {
					require.Equal(t, domain.Inflight, j.Status)
					require.NotZero(t, j.Due)
					return
				}
				require.Equal(t, domain.Queued, j.Status)
				require.Zero(t, j.Due)
				require.Zero(t, j.Revision)
			})
		})
	}
}

// No callback begins while its outcome could not be stored.
func TestNoCallbackWhileTheStoreIsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := dispatch(t, 10)
		defer d.stop()
		d.store.down = errors.New("the disk failed")
		d.begin()
		time.Sleep(time.Hour)
		require.Empty(t, d.receiver.called())
		d.store.mu.Lock()
		d.store.down = nil
		d.store.mu.Unlock()
		time.Sleep(2 * lanePause)
		synctest.Wait()
		require.Len(t, d.receiver.called(), 10)
	})
}

// A callback whose outcome could not be recorded is repeated. One whose message cannot be read now is made later. One whose
// message can never be read is not made. None of them blocks the others.
func TestCallbacksThatAreMadeAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := dispatch(t, 3)
		defer d.stop()
		d.store.unreadable[1], d.store.unreadable[2] = domain.ErrUnavailable, errors.New("no envelope")
		d.store.refusing = domain.ErrUnavailable
		d.begin()
		require.Equal(t, []string{"3"}, d.receiver.called())
		time.Sleep(outcomePause << outcomeTries)
		d.store.mu.Lock()
		d.store.refusing = nil
		delete(d.store.unreadable, 1)
		d.store.mu.Unlock()
		time.Sleep(retryPause + lanePause)
		synctest.Wait()
		require.ElementsMatch(t, []string{"3", "1", "3"}, d.receiver.called())
		require.Equal(t, []domain.JobStatus{domain.Delivered, domain.Queued, domain.Delivered}, d.store.states())
	})
}

// A failed callback is repeated after its delay, until its retries are used up.
func TestRetriesOfALane(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := dispatch(t, 1)
		defer d.stop()
		d.Rules.Backoff, d.Rules.MaxRetry = domain.Backoff{time.Minute, time.Hour}, 2
		d.receiver.fail = errors.New("500")
		d.begin()
		for calls, wait := range []time.Duration{time.Minute, time.Hour} {
			require.Len(t, d.receiver.called(), calls+1)
			time.Sleep(wait - time.Second)
			require.Len(t, d.receiver.called(), calls+1)
			time.Sleep(time.Second)
			synctest.Wait()
		}
		require.Len(t, d.receiver.called(), 3)
		require.Equal(t, domain.Dead, d.status(1))
	})
}

// Retry-After of 429 and 503 delays the next attempt, by an hour at most, and never makes it earlier.
func TestRetryAfterOfALane(t *testing.T) {
	for _, tt := range []struct {
		code  int
		value string
		want  time.Duration
	}{
		{429, "120", 2 * time.Minute},
		{503, "Sat, 01 Jan 2000 00:05:00 GMT", 5 * time.Minute}, // the bubble begins at midnight
		{503, "86400", time.Hour},
		{429, "5", time.Minute},
		{503, "soon", time.Minute},
		{503, "-120", time.Minute},
		{500, "120", time.Minute},
	} {
		synctest.Test(t, func(t *testing.T) {
			d := dispatch(t, 1)
			defer d.stop()
			d.Rules.Backoff, d.Rules.MaxRetry = domain.Backoff{time.Minute}, 1
			d.receiver.fail = errors.New("failed")
			d.receiver.answer = &webhook.Answer{Code: tt.code, Header: http.Header{"Retry-After": {tt.value}}}
			begin := time.Now()
			d.begin()
			require.Len(t, d.receiver.called(), 1)
			require.Equal(t, tt.want, d.job(1).Due.Sub(begin), tt)
			time.Sleep(tt.want)
			synctest.Wait()
			require.Len(t, d.receiver.called(), 2)
			require.Equal(t, domain.Dead, d.status(1), "it was a retry like any other")
		})
	}
}

// A receiver that answers 429 or 503 with Retry-After works, so its circuit breaker stays closed. It gets no callback until then, and operators
// see why. A change of the consumer ends the wait.
func TestRetryAfterHoldsTheLane(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := dispatch(t, 10)
		defer d.stop()
		d.Rules.Rules = openingRules
		d.Rules.Backoff, d.Rules.MaxRetry = domain.Backoff{time.Minute}, 100
		d.receiver.fail = errors.New("failed")
		d.receiver.answer = &webhook.Answer{Code: 429, Header: http.Header{"Retry-After": {"120"}}}
		d.begin()
		require.Len(t, d.receiver.called(), 1)
		want := ReceiverState{Breaker: breaker.Closed, WaitingFor: gate.Hold, WaitingUntil: d.Now().Add(2 * time.Minute)}
		require.Equal(t, want, d.Dispatch.State(pushed))
		time.Sleep(2*time.Minute - time.Second)
		require.Len(t, d.receiver.called(), 1)
		time.Sleep(time.Second)
		synctest.Wait()
		require.Len(t, d.receiver.called(), 2)
		d.change(pushed)
		require.Len(t, d.receiver.called(), 3)
		require.Zero(t, d.counted(t, EventOpened))
	})
}

// A rate holds over take-overs: the new owner assumes that the window is full. A consumer that is younger than the ownership had no other owner.
func TestRateOverATakeOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := dispatch(t, 10)
		defer d.stop()
		const window = 10 * time.Minute
		slow := pushed
		slow.RateLimit = 1 / window.Seconds()
		d.change(slow)
		d.Dispatch.gained(0)
		d.begin()
		require.Empty(t, d.receiver.called(), "a start is a take-over too")
		state := d.Dispatch.State(slow)
		require.Equal(t, gate.Wait{For: gate.Rate, Until: d.Now().Add(window)}, gate.Wait{For: state.WaitingFor, Until: state.WaitingUntil})
		time.Sleep(window)
		synctest.Wait()
		require.Len(t, d.receiver.called(), 1)
		time.Sleep(window - time.Second)
		d.Dispatch.gained(0)
		time.Sleep(window - time.Second)
		synctest.Wait()
		require.Len(t, d.receiver.called(), 1)
		time.Sleep(time.Second)
		synctest.Wait()
		require.Len(t, d.receiver.called(), 2)
		d.store.index.RemoveConsumer(1)
		synctest.Wait()
		slow.CreatedAt = d.Now()
		d.change(slow)
		require.Len(t, d.receiver.called(), 3)
	})
}

// A rate of one callback in 30,000 years permits one: its window is longer than a Duration.
func TestRateOfAlmostNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := dispatch(t, 10)
		defer d.stop()
		slow := pushed
		slow.RateLimit = 1e-12
		d.change(slow)
		d.begin()
		time.Sleep(365 * 24 * time.Hour)
		synctest.Wait()
		require.Len(t, d.receiver.called(), 1)
	})
}

// A changed rate applies at once, also to callbacks that already wait, and counts the callbacks before the change.
func TestChangedRateOfALane(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := dispatch(t, 10)
		defer d.stop()
		d.Rules.Concurrency = 3
		limited := func(rate float64) {
			c := pushed
			c.RateLimit = rate
			d.change(c)
		}
		limited(0.001)
		d.begin()
		for range 5 {
			d.Dispatch.lane(1).wake()
		}
		time.Sleep(time.Minute)
		require.Len(t, d.receiver.called(), 1)
		limited(4)
		time.Sleep(time.Second + 100*time.Millisecond)
		require.Len(t, d.receiver.called(), 6, "one at once, and four in a second")
		limited(0.001)
		time.Sleep(time.Minute)
		require.Len(t, d.receiver.called(), 6)
		limited(0)
		require.Len(t, d.receiver.called(), 10)
	})
}

// A stored secret that cannot be parsed, such as one of a later version, does not end the process. The log says so once.
func TestSecretThatCannotBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := dispatch(t, 1)
		defer d.stop()
		var log bytes.Buffer
		d.Log = slog.New(slog.NewTextHandler(&log, nil))
		c := pushed
		c.SigningSecret = "?"
		d.begin()
		d.change(c)
		l := d.Dispatch.lane(1)
		l.update(l.consumer)
		require.Equal(t, 1, strings.Count(log.String(), "callbacks go out unsigned"), log.String())
		l.mu.Lock()
		defer l.mu.Unlock()
		require.Nil(t, l.signer)
	})
}
