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

// Jobs hands jobs to workers, and changes their states.
type Jobs struct {
	*core
	fronts fronts
}

// QueuedJobs returns queued jobs of a consumer without claiming them: the first ones, or those at another place if several callers, which have
// names, ask again and again. If there is none, it waits for one up to the given time.
func (x *Jobs) QueuedJobs(ctx context.Context, c domain.Consumer, caller string, limit int, wait time.Duration) ([]Work, error) {
	place := x.fronts.place(c.Number, caller, time.Now())
	var work []Work
	err := x.poll(ctx, c, wait, func() (bool, error) {
		var err error
		work, err = x.queuedNow(ctx, c, place, limit)
		return len(work) > 0 || limit == 0, err
	})
	if err != nil {
		return nil, err
	}
	return work, nil
}

func (x *Jobs) queuedNow(ctx context.Context, c domain.Consumer, place, limit int) ([]Work, error) {
	for {
		work, ended, err := x.withMessages(ctx, c, from(x.Index.Queue.Queued(c.Number, (place+1)*limit), place, limit))
		if len(work) > 0 || !ended || err != nil {
			return work, err
		}
	}
}

// ClaimJobs gives up to limit queued jobs to one worker and to nobody else. If
// there is none, it waits for one up to the given time. The claims end after
// the limit plus the timeout, if they are not extended.
func (x *Jobs) ClaimJobs(ctx context.Context, c domain.Consumer, limit int, timeout, wait time.Duration) ([]Work, error) {
	var work []Work
	err := x.poll(ctx, c, wait, func() (bool, error) {
		var err error
		work, err = x.claimNow(ctx, c, limit, timeout)
		return len(work) > 0 || limit == 0, err
	})
	if ctx.Err() != nil {
		x.release(context.WithoutCancel(ctx), work)
		return nil, context.Cause(ctx)
	}
	x.Metrics.claimed(len(work))
	return work, err
}

// release gives claims back that no worker got.
func (x *Jobs) release(ctx context.Context, work []Work) {
	var wg sync.WaitGroup
	for _, w := range work {
		wg.Go(func() {
			_, err := x.change(ctx, w.Job.ID, func(j domain.Job) (domain.Job, bool, error) {
				next, changed := domain.Release(j, w.Job.Claim, time.Now())
				return next, changed, nil
			})
			if err != nil {
				x.Log.Info("claim that no worker got is left to expire", "job", w.Job.ID, "error", err)
			}
		})
	}
	wg.Wait()
}

// poll calls look at once and then whenever the consumer gets a job, until it
// is done or the time is over.
func (x *Jobs) poll(ctx context.Context, c domain.Consumer, wait time.Duration, look func() (done bool, err error)) error {
	timeout := time.After(wait)
	for {
		// Taken first, so that a job that comes during the look is noticed.
		signal := x.Index.Queue.QueuedSignal(c.Number)
		if done, err := look(); done || err != nil || wait <= 0 {
			return err
		}
		select {
		case <-signal:
			if current, ok := x.Consumers.ConsumerByNumber(c.Number); !ok || current.Type != domain.Pull {
				return nil
			}
		case <-timeout:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// claimNow claims without a wait. A lost race is no empty queue: where other nodes were faster with every job that it took, it
// takes the next ones. Each time they have claimed a job, so that it ends with the queue.
func (x *Jobs) claimNow(caller context.Context, c domain.Consumer, limit int, timeout time.Duration) ([]Work, error) {
	ctx := context.WithoutCancel(caller) // a claim that has begun is finished, and released if nobody gets it
	for {
		jobs, err := x.claim(ctx, c, limit, timeout)
		if errors.Is(err, errRacesLost) && caller.Err() == nil {
			continue
		}
		if len(jobs) == 0 {
			return nil, err
		}
		if work, err := x.fill(ctx, c, jobs); len(work) > 0 || err != nil {
			return work, err
		}
	}
}

// errRacesLost says that other nodes were faster with every job that was taken. Their new states are known here then.
var errRacesLost = errors.New("other nodes were faster with every job that was to be claimed")

// claim claims the first jobs of a consumer. An error means that there were some, and none could be claimed.
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

// fill gives claimed jobs their messages. A job whose message cannot be read at
// the moment is released, since nobody gets it; the others are work, if there are
// any.
func (x *Jobs) fill(ctx context.Context, c domain.Consumer, jobs []domain.Job) ([]Work, error) {
	work, _, err := x.withMessages(ctx, c, jobs)
	if err == nil {
		return work, nil
	}
	x.release(ctx, withoutMessage(jobs, work))
	if len(work) == 0 {
		return nil, err
	}
	x.Log.Warn("some claimed jobs had to be left out", "claimed", len(jobs), "given", len(work), "error", err)
	return work, nil
}

// endUnreadable ends a job whose message can never be read: left alone, it would be first for ever. The history of its attempts has the
// reason.
func (x *Jobs) endUnreadable(ctx context.Context, c domain.Consumer, w Work) error {
	_, err := x.change(ctx, w.Job.ID, func(j domain.Job) (domain.Job, bool, error) {
		now := time.Now()
		next, changed := domain.Bury(j, now, x.Rules.MaxRetry)
		if changed {
			x.Log.Error("a job is dead: its message can never be read", "channel", c.Channel, "consumer", c.ID, "job", j.ID, "error", w.Message.Unreadable)
			next = x.attempted(ctx, c, next, ended{Attempt: domain.Attempt{StartedAt: now.UTC(), Error: w.Message.Unreadable.Error()}})
		}
		return next, changed, nil
	})
	if errors.Is(err, domain.ErrNotFound) {
		return nil // pruned meanwhile
	}
	return err
}

// withoutMessage are the jobs that did not become work.
func withoutMessage(jobs []domain.Job, work []Work) (rest []Work) {
	filled := make(map[domain.JobID]bool, len(work))
	for _, w := range work {
		filled[w.Job.ID] = true
	}
	for _, j := range jobs {
		if !filled[j.ID] {
			rest = append(rest, Work{Job: j})
		}
	}
	return rest
}

// withMessages adds the messages. A job whose message was pruned meanwhile is left out, with an error one whose message could not be read
// now, and one whose message can never be read, which has ended then.
func (x *Jobs) withMessages(ctx context.Context, c domain.Consumer, jobs []domain.Job) (work []Work, ended bool, err error) {
	seqs := make([]uint64, len(jobs))
	for i, j := range jobs {
		seqs[i] = j.ID.Seq
	}
	messages, err := x.Messages.MessagesAt(ctx, seqs)
	for _, j := range jobs {
		m, ok := messages[j.ID.Seq]
		switch {
		case !ok:
		case m.Unreadable != nil:
			ended = true
			err = errors.Join(err, x.endUnreadable(context.WithoutCancel(ctx), c, Work{j, m}))
		default:
			work = append(work, Work{j, m})
		}
	}
	return work, ended, err
}

const (
	// frontKept is how long a caller that does not ask again keeps its place.
	frontKept = 30 * time.Second
	// frontsMost bounds the places in a queue, and the callers that are remembered of it.
	frontsMost = 16
	callerMost = 256
)

// fronts gives the callers that list the jobs of a queue different places to begin at. Workers that list jobs and then start them, as the original's do,
// would otherwise all start the same ones. A caller that asks once begins at the head of the queue, and so does the first of those that ask
// again. It may be used by several goroutines.
type fronts struct {
	mu      sync.Mutex
	callers map[uint32][]caller // by the consumer's number, in the order in which they came
}

// caller is somebody who lists jobs: a connection.
type caller struct {
	name  string
	last  time.Time
	again bool // it asked more than once
}

// place is how many callers are before this one.
func (f *fronts) place(consumer uint32, name string, now time.Time) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.callers == nil {
		f.callers = map[uint32][]caller{}
	}
	known := slices.DeleteFunc(f.callers[consumer], func(c caller) bool { return now.Sub(c.last) > frontKept })
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

// from is up to limit of the jobs at a place, and of those before them where the queue ends. Jobs are the head of the queue, as far as that place needs.
func from(jobs []domain.Job, place, limit int) []domain.Job {
	if len(jobs) == 0 {
		return nil
	}
	begin := place * limit % len(jobs)
	jobs = slices.Concat(jobs[begin:], jobs[:begin])
	return jobs[:min(limit, len(jobs))]
}
