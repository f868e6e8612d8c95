package work

import (
	"cmp"
	"errors"
	"math"
	"sync"
	"time"

	"github.com/jetpull/jetpull/broker/internal/domain"
	"github.com/jetpull/jetpull/internal/service/webhook"
	"github.com/jetpull/jetpull/internal/service/webhook/gate"
	"github.com/jetpull/jetpull/internal/watch"
)

const (
	// outcomeTries and outcomePause limit the attempts to record the outcome of a callback. If they fail, the callback is repeated after retryPause.
	outcomeTries = 5
	outcomePause = 200 * time.Millisecond
	retryPause   = 5 * time.Second
	// lanePause is how long a lane waits before it retries a store that did not answer.
	lanePause = time.Second
	// handOverTime limits the recording of callbacks in progress during a hand-over. The next node waits for less than that.
	handOverTime = 2 * time.Second
	// rateWindows is the number of windows of a rate limit in a second. Timers fire a little late. A window with several callbacks compensates for
	// that.
	rateWindows = 10
	// mostWindow is the longest window in seconds, 30 years, which fits into a Duration.
	mostWindow = 1e9
)

// lane dispatches the jobs of one push consumer while this node owns its shard: it takes the first job from the index, makes the callback, and
// records the outcome.
//
// A lane writes nothing when a callback begins. The ownership of the shard keeps other nodes from the job. If this node dies, nothing delays the
// shard's next owner. A node that hands over during callbacks records that their jobs are inflight.
type lane struct {
	d      *Dispatch
	shard  int
	number uint32 // of the consumer

	mu       sync.Mutex // not held during a call to the store
	consumer domain.Consumer
	signer   *webhook.Signer
	gate     gate.Gate
	timer    *time.Timer // wakes the lane when a reason to wait ends
	closed   bool
	calling  map[domain.JobID]domain.Job // jobs whose callbacks are in progress, as they were taken
	failing  time.Time                   // when callbacks began to fail, as far as this node knows; zero if the last one succeeded
}

// call is a callback in progress, with the settings at its start.
type call struct {
	job      domain.Job
	consumer domain.Consumer
	signer   *webhook.Signer
	config   gate.Config
	permit   gate.Permit
}

func newLane(d *Dispatch, c domain.Consumer) *lane {
	l := &lane{d: d, shard: d.Shards.Shard(c.Channel), number: c.Number, calling: map[domain.JobID]domain.Job{}}
	l.timer = time.AfterFunc(math.MaxInt64, l.wake)
	l.update(c)
	return l
}

// update applies a consumer's new settings. A change ends a hold, and makes an open circuit breaker probe. A resume closes the breaker.
func (l *lane) update(c domain.Consumer) {
	l.mu.Lock()
	if l.consumer.Number == c.Number && l.consumer.Revision == c.Revision {
		l.mu.Unlock()
		return
	}
	signer, err := webhook.NewSigner(c.SigningSecret)
	l.gate.Configured()
	if l.consumer.Paused() && !c.Paused() {
		l.gate.Reset() // the history is empty then
		l.failing = time.Time{}
	}
	l.consumer, l.signer = c, signer
	l.mu.Unlock()
	if err != nil && c.SigningSecret != "" {
		l.d.Log.Error("callbacks go out unsigned", "channel", c.Channel, "consumer", c.ID, "error", err)
	}
}

// configLocked returns the configuration of the gate.
func (l *lane) configLocked(owned, storeDown bool) gate.Config {
	c := gate.Config{
		Elsewhere: l.closed || !owned, Paused: l.consumer.Paused(), StoreDown: storeDown, Breaker: l.d.Rules.Rules,
		Concurrency: min(cmp.Or(l.consumer.Concurrency, l.d.Rules.Concurrency), l.d.Rules.MaxWorkers),
	}
	if rate := l.consumer.RateLimit; rate > 0 {
		c.Limit = max(1, int(rate/rateWindows))
		c.Window = time.Duration(min(float64(c.Limit)/rate, mostWindow) * float64(time.Second))
	}
	return c
}

// close prevents further callbacks.
func (l *lane) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	l.timer.Stop()
}

// gained discards the state of the receiver, which is older than the previous owner's term. The window of the rate limit counts as full, because the
// previous owner may have made callbacks until now.
func (l *lane) gained() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.gate.Reset()
	l.gate.SetWindow([]gate.Posts{{Count: l.configLocked(true, false).Limit}}, 0, time.Now())
	l.failing = time.Time{}
}

// wake starts the callback of the consumer's first job, if there is one and it may begin now. Each callback that begins wakes the lane for the next.
func (l *lane) wake() {
	if c, ok := l.take(); ok {
		go l.run(c)
	}
}

// take takes the next job if its callback may begin now. It counts the call. After all lanes are closed, no call is added, so that [Broker.Close] can
// wait for them.
func (l *lane) take() (c call, ok bool) {
	owned, storeErr := l.d.Shards.Owns(l.shard), l.d.Health.Recordable()
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	c = call{consumer: l.consumer, signer: l.signer, config: l.configLocked(owned, storeErr != nil)}
	switch wait := l.gate.Next(c.config, now); {
	case wait.For == gate.StoreDown:
		l.timer.Reset(lanePause)
		return c, false
	case !wait.Until.IsZero():
		l.timer.Reset(wait.Until.Sub(now))
		return c, false
	case wait.For != "":
		return c, false // an event will end the wait and wake the lane
	}
	for _, c.job = range l.d.Index.Queue.Take(l.number, 1) {
		c.permit = l.gate.Begin(c.config, now)
		l.calling[c.job.ID] = c.job
		l.d.calls.Add(1)
		return c, true
	}
	return c, false
}

// run makes callbacks until none may begin. A new goroutine for each would have to grow its stack again.
func (l *lane) run(c call) {
	for ok := true; ok; {
		l.wake() // there may be more jobs to take
		o, done := l.try(c)
		l.finish(c, o, done)
		c, ok = l.take()
		l.d.calls.Done() // of the call before this one
	}
}

// try makes one callback and records its outcome. If the job's message cannot be read now, the job is taken again later.
func (l *lane) try(c call) (o gate.Outcome, done result) {
	job, consumer := c.job, c.consumer
	work, err := l.d.jobs.WithMessages(l.d.work, []domain.Job{job})
	if len(work) == 0 {
		if err != nil { // otherwise the message was pruned, or can never be read
			l.d.Log.Log(l.d.work, l.d.troubleLevel(), "callback put off", "job", job.ID, "error", err)
			l.d.Index.Queue.GiveBackAfter(job, lanePause)
		}
		return gate.NotMade, done
	}
	message := work[0].Message
	done, err = l.d.callback(l.d.work, consumer, c.signer, message, job)
	if err != nil && l.d.work.Err() != nil { // a shutdown cut the callback, which is no failure of the consumer
		return gate.Unclear, done
	}
	if _, ok := l.d.Index.Consumer(consumer.Number); !ok {
		return gate.Unclear, done // the consumer was deleted with its jobs
	}
	now := l.d.Now()
	wait := done.retryAfter(now)
	switch {
	case err == nil:
		o = gate.Success
	case wait > 0: // the receiver works, but asks for time
		o = gate.Unclear
		l.mu.Lock()
		l.gate.Hold(time.Now().Add(wait))
		l.mu.Unlock()
	default:
		o = gate.Failure
	}
	next := domain.Attempted(job, err == nil, wait, now, l.d.Rules.Backoff, l.d.Rules.MaxRetry)
	l.d.Metrics.attempted(next.Status, now.Sub(message.ReceivedAt))
	if err != nil {
		l.d.Log.Info("callback failed", "channel", consumer.Channel, "consumer", consumer.ID, "job", job.ID, "next", next.Status, "retry", next.Retries,
			"due", next.Due, "error", done.Error)
	}
	l.record(job, l.d.jobs.attempted(l.d.work, consumer, next, done), done.Error)
	return o, done
}

// record writes the outcome of a callback. If another node or worker has the job, that one's outcome counts instead. A job that this node has handed
// over during its callback still belongs to this node. reason says why the callback failed.
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

// finish counts the outcome of a callback for the breaker and the pause of its consumer. It ignores a deleted consumer: events identify a consumer by
// its ID, which another consumer may have by now.
func (l *lane) finish(c call, o gate.Outcome, a result) {
	l.mu.Lock()
	delete(l.calling, c.job.ID)
	if l.closed {
		l.mu.Unlock()
		return
	}
	now := time.Now()
	change := l.gate.End(c.config, c.permit, o, now)
	switch {
	case o == gate.Success:
		l.failing = time.Time{}
	case o == gate.Failure && l.failing.IsZero():
		l.failing = now
	}
	after := l.d.Rules.PauseAfter
	pause := o == gate.Failure && after > 0 && now.Sub(l.failing) >= after
	l.mu.Unlock()
	if pause {
		l.d.pauseFailing(c.consumer)
	}
	switch change {
	case gate.Opened:
		l.d.notify(EventOpened, c.consumer, "too many callbacks failed, the last one with: "+a.masked(c.consumer).Error)
	case gate.Closed:
		l.d.notify(EventClosed, c.consumer, "a callback succeeded")
	case gate.Unchanged:
	}
}
