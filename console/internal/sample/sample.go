// Package sample reads the state of each source of the console once per interval, however many pages are open, and keeps the
// values of the last hour.
package sample

import (
	"context"
	"maps"
	"sync"
	"time"
)

const (
	// watchedInterval is the time between two samples while a page is open, and idleInterval that while none is. A change is
	// on an open page within a second.
	watchedInterval = 500 * time.Millisecond
	idleInterval    = 10 * time.Second
	// askTimeout bounds one request to a source.
	askTimeout = 10 * time.Second
	// current is the greatest age of a sample that is shown without a request.
	current = time.Second
	// Patience is how long a page waits for a source before it shows the last sample in grey.
	Patience = 2 * time.Second
	// slow is the time of an answer from which on a source has much to count. It is asked as often as while no page is open.
	slow = 250 * time.Millisecond
)

// Sampler runs the requests to all sources. It may be used by several goroutines.
type Sampler struct {
	ctx     context.Context
	stop    context.CancelFunc
	running sync.WaitGroup

	mu       sync.Mutex
	watchers int
	changed  chan struct{}
	kicks    []chan struct{}
	// histories are those of the sources, by name.
	histories map[string]*History
}

// New makes a sampler. The caller closes it.
func New() *Sampler {
	s := &Sampler{changed: make(chan struct{}), histories: map[string]*History{}}
	s.ctx, s.stop = context.WithCancel(context.Background())
	return s
}

// Close ends all requests and waits for them.
func (s *Sampler) Close() {
	s.stop()
	s.running.Wait()
}

// Go runs a function until Close, which ends its context and waits for it.
func (s *Sampler) Go(run func(context.Context)) { s.running.Go(func() { run(s.ctx) }) }

// Histories are the histories of the sources by name.
func (s *Sampler) Histories() map[string]*History {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.histories)
}

// Watch has the sources asked more often until the returned function is called.
func (s *Sampler) Watch() (end func()) {
	s.mu.Lock()
	s.watchers++
	first := s.watchers == 1
	s.mu.Unlock()
	if first {
		s.Refresh()
	}
	return sync.OnceFunc(func() {
		s.mu.Lock()
		s.watchers--
		s.mu.Unlock()
	})
}

// Refresh has all sources asked at once, for example after an action.
func (s *Sampler) Refresh() {
	s.mu.Lock()
	kicks := s.kicks
	s.mu.Unlock()
	for _, kick := range kicks {
		select {
		case kick <- struct{}{}:
		default:
		}
	}
}

// Changed is closed with the next sample of any source.
func (s *Sampler) Changed() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changed
}

func (s *Sampler) announce() {
	s.mu.Lock()
	changed := s.changed
	s.changed = make(chan struct{})
	s.mu.Unlock()
	close(changed)
}

func (s *Sampler) interval() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.watchers > 0 {
		return watchedInterval
	}
	return idleInterval
}

// Latest is the last answer of one source.
type Latest[T any] struct {
	sampler *Sampler
	kick    chan struct{}

	mu     sync.Mutex
	sample Sample[T]
	// begun counts the requests that were begun, and ended those that have ended. The last was begun at asked.
	begun, ended uint64
	asked        time.Time
}

// Sample is an answer of a source.
type Sample[T any] struct {
	Value T
	// At is when the source answered. Zero: it has not answered yet.
	At time.Time
	// Err is why the last request failed; nil: it did not.
	Err error
	// Failing is when the first of the last requests began that failed, or are not answered within [Patience]; zero: the last was answered. Took is
	// how long the last answer took.
	Failing time.Time
	Took    time.Duration
}

// Stale reports whether the sample is older than it should be while a page is open.
func (s Sample[T]) Stale() bool { return s.Err != nil || time.Since(s.At) > Patience+s.rest() }

// rest is the least time until the source is asked again.
func (s Sample[T]) rest() time.Duration {
	if s.Took >= slow {
		return idleInterval
	}
	return 0
}

// Add has the sampler ask a source.
func Add[T any](s *Sampler, ask func(context.Context) (T, error)) *Latest[T] {
	l := &Latest[T]{sampler: s, kick: make(chan struct{}, 1)}
	s.mu.Lock()
	s.kicks = append(s.kicks, l.kick)
	s.mu.Unlock()
	s.running.Go(func() { l.run(ask) })
	return l
}

func (l *Latest[T]) run(ask func(context.Context) (T, error)) {
	for l.sampler.ctx.Err() == nil {
		l.mu.Lock()
		l.begun++
		l.asked = time.Now()
		l.mu.Unlock()
		ctx, cancel := context.WithTimeout(l.sampler.ctx, askTimeout)
		value, err := ask(ctx)
		cancel()
		l.mu.Lock()
		l.ended = l.begun
		l.sample.Err = err
		if err == nil {
			now := time.Now()
			l.sample = Sample[T]{Value: value, At: now, Took: now.Sub(l.asked)}
		} else if l.sample.Failing.IsZero() {
			l.sample.Failing = l.asked
		}
		l.mu.Unlock()
		l.sampler.announce()
		l.pause()
	}
}

// pause waits for the next request. The interval is computed again when a page is opened, since that kicks. Intervals begin at multiples of
// their length: however long each source takes to answer, all are asked at the same times, and an open page is rendered once for all answers.
func (l *Latest[T]) pause() {
	interval, now := max(l.sampler.interval(), l.Get().rest()), time.Now()
	timer := time.NewTimer(now.Truncate(interval).Add(interval).Sub(now))
	defer timer.Stop()
	select {
	case <-l.sampler.ctx.Done():
	case <-l.kick:
	case <-timer.C:
	}
}

// Get is the last sample. It does not wait.
func (l *Latest[T]) Get() Sample[T] {
	sample, _, _ := l.state()
	return sample
}

// state is the last sample, with the numbers of requests.
func (l *Latest[T]) state() (sample Sample[T], begun, ended uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	sample = l.sample
	if sample.Failing.IsZero() && l.ended < l.begun && time.Since(l.asked) >= Patience {
		sample.Failing = l.asked
	}
	return sample, l.begun, l.ended
}

// Fresh is a sample of the last second, or of a longer time if the source is slow. If there is none, it asks the source and waits for the answer for
// up to [Patience]. If the last request has failed, it does not wait: the last sample is returned with the error.
func (l *Latest[T]) Fresh(ctx context.Context) Sample[T] {
	sample, want, ended := l.state()
	if ended == want {
		want++
	}
	if sample.Err != nil || time.Since(sample.At) <= max(current, sample.rest()) {
		return sample
	}
	return l.await(ctx, want)
}

// Next is the sample of a request that begins after the call, so that it shows the effect of an action. It waits for up to
// [Patience].
func (l *Latest[T]) Next(ctx context.Context) Sample[T] {
	_, begun, _ := l.state()
	return l.await(ctx, begun+1)
}

// await waits for the end of a request, which are counted from 1.
func (l *Latest[T]) await(ctx context.Context, want uint64) Sample[T] {
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	for {
		changed := l.sampler.Changed()
		sample, begun, ended := l.state()
		if ended >= want {
			return sample
		}
		if begun < want {
			select {
			case l.kick <- struct{}{}:
			default:
			}
		}
		select {
		case <-ctx.Done():
			return l.Get()
		case <-changed:
		}
	}
}
