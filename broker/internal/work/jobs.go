package work

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/jetpull/jetpull/broker/internal/domain"
)

// Work is a job with its message, as a worker gets it.
type Work struct {
	Job     domain.Job
	Message domain.Message
}

// Jobs hands jobs to workers and changes their states.
type Jobs struct {
	*core
	fronts fronts
}

// QueuedJobs returns queued jobs of a consumer without claiming them. A single caller gets the first jobs. If several callers, identified by name,
// ask repeatedly, each starts at a different place. If there is no job, QueuedJobs waits up to wait for one.
func (x *Jobs) QueuedJobs(ctx context.Context, c domain.Consumer, caller string, limit int, wait time.Duration) ([]Work, error) {
	place := x.fronts.place(c.Number, caller, time.Now())
	return x.poll(ctx, c, limit, wait, func() ([]Work, error) {
		for {
			jobs := startingAt(x.Index.Queue.Queued(c.Number, (place+1)*limit), place, limit)
			work, err := x.WithMessages(ctx, jobs)
			if len(work) > 0 || len(jobs) == 0 || err != nil {
				return work, err
			}
		}
	})
}

// ClaimJobs claims up to limit queued jobs for one worker. If there are none, it waits up to wait for one. Unless they are extended, the claims end
// after the claim limit plus timeout, even if the response does not reach the worker.
func (x *Jobs) ClaimJobs(ctx context.Context, c domain.Consumer, limit int, timeout, wait time.Duration) ([]Work, error) {
	work, err := x.poll(ctx, c, limit, wait, func() ([]Work, error) { return x.claimNow(ctx, c, limit, timeout) })
	x.Metrics.claims.Add(float64(len(work)))
	return work, err
}

// poll calls look now, and again whenever the consumer gets a job, until look finds work or wait has passed.
func (x *Jobs) poll(ctx context.Context, c domain.Consumer, limit int, wait time.Duration, look func() ([]Work, error)) ([]Work, error) {
	timeout := time.After(wait)
	for {
		// The signal must be obtained first. Otherwise a job that arrives during the look would not be noticed.
		signal := x.Index.Queue.QueuedSignal(c.Number)
		work, err := look()
		if err != nil || len(work) > 0 || limit == 0 || wait <= 0 {
			return work, err
		}
		select {
		case <-signal:
			if current, ok := x.Index.Consumer(c.Number); !ok || current.Type != domain.Pull {
				return nil, nil
			}
		case <-timeout:
			return nil, nil
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// claimNow claims without waiting. It reads the messages first, so that a job whose message cannot be read now stays queued. If other nodes have
// claimed every job that it tried, the queue may still have jobs, so it tries the next ones. It terminates, because each lost race means that another
// node has claimed a job.
func (x *Jobs) claimNow(ctx context.Context, c domain.Consumer, limit int, timeout time.Duration) ([]Work, error) {
	for ctx.Err() == nil {
		taken := x.Index.Queue.Take(c.Number, limit)
		work, err := x.WithMessages(ctx, taken)
		for _, j := range taken {
			if len(work) < len(taken) && !slices.ContainsFunc(work, func(w Work) bool { return w.Job.ID == j.ID }) {
				x.Index.Queue.GiveBack(j)
			}
		}
		if len(taken) == 0 || len(work) == 0 && err != nil {
			return nil, err
		}
		work, err = x.claim(context.WithoutCancel(ctx), work, timeout) // completes even if ctx ends
		if len(work) > 0 || !errors.Is(err, errRacesLost) {
			return work, err
		}
	}
	return nil, context.Cause(ctx)
}

// errRacesLost reports that other nodes claimed every job that claim tried. By then, this node knows the new states of those jobs.
var errRacesLost = errors.New("other nodes were faster with every job that was to be claimed")

// claim claims jobs. It returns an error only if it could not claim any.
func (x *Jobs) claim(ctx context.Context, work []Work, timeout time.Duration) ([]Work, error) {
	errs := make([]error, len(work))
	var wg sync.WaitGroup
	for i, w := range work {
		wg.Go(func() {
			next, err := domain.Claim(w.Job, domain.NewToken(), timeout, x.Now(), x.Rules.ClaimLimit())
			if err == nil {
				next, err = x.Records.PutJob(ctx, next)
			}
			if work[i].Job, errs[i] = next, err; err != nil {
				x.Index.Queue.GiveBack(w.Job)
			}
		})
	}
	wg.Wait()
	claimed, failed := make([]Work, 0, len(work)), errRacesLost
	for i, err := range errs {
		switch {
		case err == nil:
			claimed = append(claimed, work[i])
		case !errors.Is(err, domain.ErrConflict) || errors.Is(err, domain.ErrUnavailable):
			failed = err
		}
	}
	if len(claimed) == 0 {
		return nil, failed
	}
	return claimed, nil
}

// WithMessages adds the messages to jobs. It leaves out jobs whose messages were pruned or can never be read. When it returns, these jobs are no
// longer queued. It also leaves out jobs whose messages could not be read now, and returns an error for them.
func (x *Jobs) WithMessages(ctx context.Context, jobs []domain.Job) (work []Work, err error) {
	seqs := make([]uint64, len(jobs))
	for i, j := range jobs {
		seqs[i] = j.ID.Seq
	}
	messages, err := x.Messages.InOrder(ctx, seqs)
	for _, j := range jobs {
		if len(messages) > 0 && messages[0].Seq == j.ID.Seq {
			work, messages = append(work, Work{j, messages[0]}), messages[1:]
		}
	}
	return work, err
}

const (
	// frontExpiry is how long a caller keeps its place after its last request.
	frontExpiry = 30 * time.Second
	// frontsMost limits the places in a queue. callerMost limits the callers remembered per queue.
	frontsMost = 16
	callerMost = 256
)

// fronts assigns different places in a queue to callers that list its jobs. Otherwise all workers that list jobs before they start them, as the
// original's workers do, would start the same jobs. A caller's first request starts at the head of the queue, and so do all requests of the first
// caller that repeats them. fronts is safe for concurrent use.
type fronts struct {
	mu      sync.Mutex
	callers map[uint32][]caller // by the consumer's number, in order of their first request
}

// caller is a caller that lists jobs. Its connection identifies it.
type caller struct {
	name  string
	last  time.Time
	again bool // it has made more than one request
}

// place returns the place at which a caller starts: how many callers are before it.
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

// startingAt returns up to limit jobs, starting at a place. If the queue ends before limit is reached, it adds jobs from in front of the place. jobs
// is the head of the queue, as far as the place requires.
func startingAt(jobs []domain.Job, place, limit int) []domain.Job {
	if len(jobs) == 0 {
		return nil
	}
	begin := place * limit % len(jobs)
	jobs = slices.Concat(jobs[begin:], jobs[:begin])
	return jobs[:min(limit, len(jobs))]
}
