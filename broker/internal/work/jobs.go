package work

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/jetpull/jetpull/broker/internal/domain"
)

// Work is a job together with its message, as a worker gets it.
type Work struct {
	Job     domain.Job
	Message domain.Message
}

// Jobs hands jobs to workers and changes their states.
type Jobs struct {
	*core
	fronts fronts
}

// QueuedJobs returns queued jobs of a consumer without claiming them. A single caller gets the first jobs. If several callers,
// identified by name, ask repeatedly, each begins at another place. If there is no job, it waits for one up to the given time.
func (x *Jobs) QueuedJobs(ctx context.Context, c domain.Consumer, caller string, limit int, wait time.Duration) ([]Work, error) {
	place := x.fronts.place(c.Number, caller, time.Now())
	return x.poll(ctx, c, limit, wait, func() ([]Work, error) {
		for {
			jobs := from(x.Index.Queue.Queued(c.Number, (place+1)*limit), place, limit)
			work, err := x.WithMessages(ctx, jobs)
			if len(work) > 0 || len(jobs) == 0 || err != nil {
				return work, err
			}
		}
	})
}

// ClaimJobs claims up to limit queued jobs for one worker alone. If there are none, it waits for one up to the given time. The
// claims end after the claim limit plus the timeout, unless they are extended.
func (x *Jobs) ClaimJobs(ctx context.Context, c domain.Consumer, limit int, timeout, wait time.Duration) ([]Work, error) {
	work, err := x.poll(ctx, c, limit, wait, func() ([]Work, error) { return x.claimNow(ctx, c, limit, timeout) })
	if ctx.Err() != nil {
		var jobs []domain.Job
		for _, w := range work {
			jobs = append(jobs, w.Job)
		}
		x.release(context.WithoutCancel(ctx), jobs)
		return nil, context.Cause(ctx)
	}
	x.Metrics.claims.Add(float64(len(work)))
	return work, err
}

// release releases claims that no worker has received.
func (x *Jobs) release(ctx context.Context, jobs []domain.Job) {
	var wg sync.WaitGroup
	for _, claimed := range jobs {
		wg.Go(func() {
			_, err := x.change(ctx, claimed.ID, func(j domain.Job) (domain.Job, bool, error) {
				next, changed := domain.Release(j, claimed.Claim, time.Now())
				return next, changed, nil
			})
			if err != nil {
				x.Log.Info("claim that no worker got is left to expire", "job", claimed.ID, "error", err)
			}
		})
	}
	wg.Wait()
}

// poll calls look at once, and again whenever the consumer gets a job, until look finds work or the time is over.
func (x *Jobs) poll(ctx context.Context, c domain.Consumer, limit int, wait time.Duration, look func() ([]Work, error)) ([]Work, error) {
	timeout := time.After(wait)
	for {
		// The signal is obtained first, so that a job that arrives during the look is noticed.
		signal := x.Index.Queue.QueuedSignal(c.Number)
		work, err := look()
		if err != nil || len(work) > 0 || limit == 0 || wait <= 0 {
			return work, err
		}
		select {
		case <-signal:
			if current, ok := x.Consumers.ConsumerByNumber(c.Number); !ok || current.Type != domain.Pull {
				return nil, nil
			}
		case <-timeout:
			return nil, nil
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// claimNow claims without waiting. After a lost race the queue may still have jobs: if other nodes have claimed every job that it
// tried, it tries the next ones. It ends because each lost race means that another node has claimed a job.
func (x *Jobs) claimNow(caller context.Context, c domain.Consumer, limit int, timeout time.Duration) ([]Work, error) {
	ctx := context.WithoutCancel(caller) // a claim that has begun is completed, and released if no worker gets it
	for {
		jobs, err := x.claim(ctx, c, limit, timeout)
		if errors.Is(err, errRacesLost) && caller.Err() == nil {
			continue
		}
		if len(jobs) == 0 {
			return nil, err
		}
		if work, err := x.fill(ctx, jobs); len(work) > 0 || err != nil {
			return work, err
		}
	}
}

// errRacesLost says that other nodes have claimed every job that was tried. This node knows their new states by then.
var errRacesLost = errors.New("other nodes were faster with every job that was to be claimed")

// claim claims the first jobs of a consumer. An error means that there were jobs, and none could be claimed.
func (x *Jobs) claim(ctx context.Context, c domain.Consumer, limit int, timeout time.Duration) ([]domain.Job, error) {
	taken := x.Index.Queue.Take(c.Number, limit)
	if len(taken) == 0 {
		return nil, nil
	}
	claimed, errs := make([]domain.Job, len(taken)), make([]error, len(taken))
	var wg sync.WaitGroup
	for i, j := range taken {
		wg.Go(func() {
			next, err := domain.Claim(j, domain.NewToken(), timeout, time.Now(), x.Rules.ClaimLimit())
			if err == nil {
				next, err = x.Records.PutJob(ctx, next)
			}
			if claimed[i], errs[i] = next, err; err != nil {
				x.Index.Queue.GiveBack(j)
			}
		})
	}
	wg.Wait()
	jobs, failed := make([]domain.Job, 0, len(taken)), errRacesLost
	for i, err := range errs {
		switch {
		case err == nil:
			jobs = append(jobs, claimed[i])
		case !errors.Is(err, domain.ErrConflict) || errors.Is(err, domain.ErrUnavailable):
			failed = err
		}
	}
	if len(jobs) == 0 {
		return nil, failed
	}
	return jobs, nil
}

// fill adds the messages to claimed jobs. If the message of a job cannot be read now, the job is released. It returns an error
// only if no job is left.
func (x *Jobs) fill(ctx context.Context, jobs []domain.Job) ([]Work, error) {
	work, err := x.WithMessages(ctx, jobs)
	if err == nil {
		return work, nil
	}
	x.release(ctx, slices.DeleteFunc(jobs, func(j domain.Job) bool {
		return slices.ContainsFunc(work, func(w Work) bool { return w.Job.ID == j.ID })
	}))
	if len(work) == 0 {
		return nil, err
	}
	x.Log.Warn("some claimed jobs had to be left out", "given", len(work), "error", err)
	return work, nil
}

// WithMessages adds the messages. It leaves out jobs whose messages were pruned or can never be read, which are in no queue any
// more when it returns. It also leaves out jobs whose messages could not be read, and returns an error for them.
func (x *Jobs) WithMessages(ctx context.Context, jobs []domain.Job) (work []Work, err error) {
	seqs := make([]uint64, len(jobs))
	for i, j := range jobs {
		seqs[i] = j.ID.Seq
	}
	messages, err := x.Messages.MessagesAt(ctx, seqs)
	for _, j := range jobs {
		if m, ok := messages[j.ID.Seq]; ok {
			work = append(work, Work{j, m})
		}
	}
	return work, err
}

const (
	// frontExpiry is how long a caller keeps its place after its last request.
	frontExpiry = 30 * time.Second
	// frontsMost bounds the places in a queue, and the callers remembered per queue.
	frontsMost = 16
	callerMost = 256
)

// fronts assigns callers that list the jobs of a queue different places to begin at. Workers that list jobs and then start them,
// as the original's do, would otherwise all start the same jobs. A caller's first request begins at the head of the queue, and so
// does the first of the callers that repeat requests. It may be used by several goroutines.
type fronts struct {
	mu      sync.Mutex
	callers map[uint32][]caller // by the consumer's number, in order of their first request
}

// caller is a caller that lists jobs, identified by its connection.
type caller struct {
	name  string
	last  time.Time
	again bool // it has made more than one request
}

// place returns how many callers are before this one.
func (f *fronts) place(consumer uint32, name string, now time.Time) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.callers == nil {
		f.callers = map[uint32][]caller{}
	}
	known := slices.DeleteFunc(f.callers[consumer], func(c caller) bool { return now.Sub(c.last) > frontExpiry })
	defer func() { f.callers[consumer] = known }()
	place := 0
	for i, c := range known {
		if c.name == name {
			known[i].last, known[i].again = now, true
			return place % frontsMost
		}
		if c.again {
			place++
		}
	}
	if len(known) < callerMost {
		known = append(known, caller{name: name, last: now})
	}
	return 0
}

// from returns up to limit jobs that begin at a place. If the queue ends before, it fills up with jobs in front of the place.
// jobs is the head of the queue, as far as the place requires.
func from(jobs []domain.Job, place, limit int) []domain.Job {
	if len(jobs) == 0 {
		return nil
	}
	begin := place * limit % len(jobs)
	jobs = slices.Concat(jobs[begin:], jobs[:begin])
	return jobs[:min(limit, len(jobs))]
}
