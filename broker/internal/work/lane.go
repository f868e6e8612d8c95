package work

import (
	"cmp"
	"errors"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/jetpull/jetpull/broker/internal/domain"
	"github.com/jetpull/jetpull/internal/watch"
	"github.com/jetpull/jetpull/internal/webhook"
	"github.com/jetpull/jetpull/internal/webhook/breaker"
)

const (
	// outcomeTries and outcomePause bound the attempts to record the outcome of a callback. After them, the callback is repeated
	// after retryPause.
	outcomeTries = 5
	outcomePause = 200 * time.Millisecond
	retryPause   = 5 * time.Second
	// lanePause is the wait before a lane retries a store that did not answer.
	lanePause = time.Second
	// handOverTime bounds the recording of callbacks in progress at a hand-over. The next node waits for less than that.
	handOverTime = 2 * time.Second
)

// lane dispatches the jobs of one push consumer while this node owns its shard: it takes the first job from the index, makes the
// callback and records the outcome.
//
// Nothing is written when a callback begins. The shard keeps other nodes from the job. If this node dies, nothing delays the next
// owner of the shard. A node that hands over during callbacks records that their jobs are in flight.
type lane struct {
	d      *Dispatch
	shard  int
	number uint32 // of the consumer

	mu       sync.Mutex // never held during a call of the store
	consumer domain.Consumer
	pace     *rate.Limiter // nil: no limit
	signer   *webhook.Signer
	busy     int       // goroutines that take jobs
	calls    uint64    // of wake, so that a goroutine that found no job misses none
	asleep   time.Time // until when the lane pauses
	closed   bool
	calling  map[domain.JobID]domain.Job // jobs whose callbacks are in progress, as they were taken
	breaker  breaker.Breaker
	failing  time.Time // since when callbacks fail, as far as this node knows; zero: the last one succeeded
}

func newLane(d *Dispatch, c domain.Consumer) *lane {
	l := &lane{d: d, shard: d.Shards.Shard(c.Channel), number: c.Number, calling: map[domain.JobID]domain.Job{}}
	l.update(c)
	return l
}

// update applies the consumer's settings, if they have changed. A resume closes an open circuit breaker.
func (l *lane) update(c domain.Consumer) {
	l.mu.Lock()
	if l.consumer.Number == c.Number && l.consumer.Revision == c.Revision {
		l.mu.Unlock()
		return
	}
	signer, err := webhook.NewSigner(c.SigningSecret)
	if l.consumer.Paused() && !c.Paused() {
		l.breaker.Reset() // with an empty history
		l.failing = time.Time{}
	}
	if l.consumer.RateLimit != c.RateLimit {
		l.pace = nil
		if c.RateLimit > 0 {
			// Timers are a little late. At high rates the burst makes up for that.
			l.pace = rate.NewLimiter(rate.Limit(c.RateLimit), max(1, int(c.RateLimit/50)))
		}
	}
	l.consumer, l.signer = c, signer
	l.mu.Unlock()
	if err != nil && c.SigningSecret != "" {
		l.d.Log.Error("callbacks go out unsigned", "channel", c.Channel, "consumer", c.ID, "error", err)
	}
}

func (l *lane) concurrency() int {
	return min(cmp.Or(l.consumer.Concurrency, l.d.Rules.Concurrency), l.d.Rules.MaxWorkers)
}

// close lets no further callback begin.
func (l *lane) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
}

// gained forgets what this node knew of the receiver: it is older than the previous owner's time.
func (l *lane) gained() {
	l.mu.Lock()
	l.breaker.Reset()
	l.failing = time.Time{}
	l.mu.Unlock()
	l.wake()
}

// wake signals that there may be a job to take.
func (l *lane) wake() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls++
	l.startLocked()
}

// startLocked starts another goroutine, if the consumer's concurrency allows it.
func (l *lane) startLocked() {
	if l.busy < l.concurrency() && !l.closed {
		l.busy++
		l.d.calls.Go(l.run)
	}
}

// run makes callbacks until there is no job to take.
func (l *lane) run() {
	calls, found := uint64(0), true
	for {
		l.mu.Lock()
		if l.closed || l.busy > l.concurrency() || !found && l.calls == calls {
			l.busy--
			l.mu.Unlock()
			return
		}
		calls = l.calls
		l.mu.Unlock()
		job, turn, ok := l.take()
		if found = ok; found {
			l.try(job, turn)
		}
	}
}

// take returns the first job of the consumer if its callback may begin now, and the turn that the circuit breaker gave it.
func (l *lane) take() (job domain.Job, turn int, ok bool) {
	l.mu.Lock()
	pace, closed := l.pace, l.closed
	l.mu.Unlock()
	if closed || !l.mayBegin() || len(l.d.Index.Queue.Queued(l.number, 1)) == 0 {
		return job, 0, false
	}
	// The job is chosen after the wait, so that priorities hold at that time.
	if pace != nil {
		if turn := pace.Reserve(); turn.Delay() > 0 {
			l.sleep(turn.Delay())
			turn.Cancel()
			return job, 0, false
		}
	}
	if turn, ok = l.passes(); !ok {
		return job, 0, false
	}
	jobs := l.d.Index.Queue.Take(l.number, 1)
	if len(jobs) == 0 {
		l.withdraw(turn)
		return job, 0, false
	}
	return jobs[0], turn, true
}

// passes asks the circuit breaker whether a callback may begin.
func (l *lane) passes() (turn int, ok bool) {
	l.mu.Lock()
	now := time.Now()
	turn, ok = l.breaker.Allow(now)
	wait := l.breaker.Wait(now)
	l.mu.Unlock()
	if !ok && wait < breaker.Forever {
		l.sleep(wait)
	}
	return turn, ok
}

// withdraw reports to the breaker that a callback did not begin.
func (l *lane) withdraw(turn int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.breaker.Withdraw(turn)
}

// mayBegin reports whether a callback may begin. If its outcome could not be stored, it must not begin.
func (l *lane) mayBegin() bool {
	if !l.d.Shards.Owns(l.shard) {
		return false
	}
	if err := l.d.Health.Recordable(); err != nil {
		l.d.Log.Debug("no callback while its outcome could not be kept", "error", err)
		l.sleep(lanePause)
		return false
	}
	return true
}

// sleep makes the lane look again after a pause.
func (l *lane) sleep(pause time.Duration) {
	now := time.Now()
	l.mu.Lock()
	sooner := !l.asleep.After(now) || now.Add(pause).Before(l.asleep)
	if sooner {
		l.asleep = now.Add(pause)
	}
	l.mu.Unlock()
	if sooner {
		l.d.Index.Queue.WakeAfter(l.number, pause)
	}
}

// try makes one callback and records its outcome. If the message of the job cannot be read now, the job is taken again later.
func (l *lane) try(job domain.Job, turn int) {
	l.mu.Lock()
	l.calling[job.ID] = job
	c, signer := l.consumer, l.signer
	l.startLocked() // there may be more jobs to take
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		delete(l.calling, job.ID)
		l.mu.Unlock()
	}()
	work, err := l.d.jobs.WithMessages(l.d.work, []domain.Job{job})
	if len(work) == 0 {
		l.withdraw(turn)
		if err != nil { // otherwise the message was pruned, or can never be read
			l.d.Log.Log(l.d.work, l.d.troubleLevel(), "callback put off", "job", job.ID, "error", err)
			l.d.Index.Queue.GiveBackAfter(job, lanePause)
		}
		return
	}
	message := work[0].Message
	done, err := l.d.callback(l.d.work, c, signer, message, job)
	if err != nil && l.d.work.Err() != nil { // cut by a shutdown, which is no failure of the consumer
		l.withdraw(turn)
		return
	}
	if _, ok := l.d.Consumers.ConsumerByNumber(c.Number); !ok {
		return // it was deleted with its jobs
	}
	now := time.Now()
	l.health(c, turn, err == nil, now)
	next := domain.Attempted(job, err == nil, done.asked(now), now, l.d.Rules.Backoff, l.d.Rules.MaxRetry)
	l.d.Metrics.attempted(next.Status, message.ReceivedAt)
	if err != nil {
		l.d.Log.Info("callback failed", "channel", c.Channel, "consumer", c.ID, "job", job.ID, "next", next.Status, "retry", next.Retries, "due", next.Due, "error", done.Error)
	}
	l.record(job, l.d.jobs.attempted(l.d.work, c, next, done), done.Error)
}

// record writes the outcome of a callback, unless another node or worker has the job: then the other one's outcome counts. A job that this
// node has handed over during its callback is still its own. reason says why the callback failed.
func (l *lane) record(job, next domain.Job, reason string) {
	var err error
	for try := range outcomeTries {
		_, err = l.d.Records.PutJob(l.d.work, next)
		if err == nil && next.Status == domain.Dead {
			l.d.died(next, reason)
		}
		if err == nil {
			return
		}
		if errors.Is(err, domain.ErrConflict) && !errors.Is(err, domain.ErrUnavailable) {
			now, err := l.d.Records.Job(l.d.work, job.ID)
			if err != nil || now.Status != domain.Inflight || now.Claim != l.d.handOver {
				return
			}
			next.Revision = now.Revision
			continue
		}
		if watch.Sleep(l.d.work, outcomePause<<try) != nil {
			return
		}
	}
	l.d.Log.Log(l.d.work, l.d.troubleLevel(), "the outcome of a callback could not be recorded, it will be made again", "job", next.ID, "error", err)
	l.d.Index.Queue.GiveBackAfter(job, retryPause)
}

// health counts the outcome of a callback for the breaker and the pause of its consumer. It ignores consumers that were deleted:
// events name a consumer by its ID, which another one may have now.
func (l *lane) health(c domain.Consumer, turn int, success bool, now time.Time) {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return
	}
	changed := l.breaker.Outcome(l.d.Rules.Rules, turn, success, now)
	state := l.breaker.Current()
	switch {
	case success:
		l.failing = time.Time{}
	case l.failing.IsZero():
		l.failing = now
	}
	after := l.d.Rules.PauseAfter
	pause := !success && after > 0 && now.Sub(l.failing) >= after
	l.mu.Unlock()
	if pause {
		l.d.pauseFailing(c)
	}
	if changed {
		event := EventOpened
		if state == breaker.Closed {
			event = EventClosed
		}
		l.d.notify(event, c, "")
		l.wake()
	}
}
