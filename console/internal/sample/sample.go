// Package sample reads the state of each source of the console once per interval, however many pages are open, and holds the values of the last hour.
package sample

import (
	"context"
	"sync"
	"time"
)

const (
	// watchedInterval is the interval between two samples while a page is open, and idleInterval while no page is open. An open page shows a change
	// within a second.
	watchedInterval = 500 * time.Millisecond
	idleInterval    = 10 * time.Second
	// askTimeout limits one request to a source.
	askTimeout = 10 * time.Second
	// current is the maximum age of a sample that is shown without a request.
	current = time.Second
	// Patience is how long a page waits for a source before it shows the last sample in grey.
	Patience = 2 * time.Second
	// slow is the response time from which a source counts as expensive. Such a source is always asked at idleInterval.
	slow = 250 * time.Millisecond
)

// Sampler makes the requests to all sources. It is safe for concurrent use.
type Sampler struct {
	ctx     context.Context
	stop    context.CancelFunc
	running sync.WaitGroup
	// Histories contains the histories of the sources, by name. It does not change after the pages were created.
	Histories map[string]*History

	mu       sync.Mutex
	watchers int
	changed  chan struct{}
	kicks    []kick
}

// New returns a sampler, which the caller must close.
func New() *Sampler {
	s := &Sampler{changed: make(chan struct{}), Histories: map[string]*History{}}
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

// Watch makes the sampler ask the sources more often until end is called.
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

// Refresh makes the sampler ask all sources now, for example after an action.
func (s *Sampler) Refresh() {
	s.mu.Lock()
	kicks := s.kicks
	s.mu.Unlock()
	for _, one := range kicks {
		one.now()
	}
}

// kick starts a request before its time.
type kick chan struct{}

func (k kick) now() {
	select {
	case k <- struct{}{}:
	default: // a request will start anyway
	}
}

// Changed returns a channel that is closed at the next sample of any source.
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

// Latest holds the last sample of one source.
type Latest[T any] struct {
	sampler *Sampler
	kick    kick

	mu     sync.Mutex
	sample Sample[T]
	asked  time.Time // when the last request started
	// running is closed when that request ends, and nil after that. next is closed when the following request ends.
	running, next chan struct{}
}

// Sample is an answer of a source.
type Sample[T any] struct {
	Value T
	// At is when the source answered. It is zero if it has not answered yet.
	At time.Time
	// Err is why the last request failed, or nil.
	Err error
	// Failing is when the first of the consecutive requests started that failed, or were not answered within [Patience]. It is zero if the last
	// request was answered. Took is how long the last answer took.
	Failing time.Time
	Took    time.Duration
}

// Stale reports whether the sample is older than it should be while a page is open.
func (s Sample[T]) Stale() bool { return s.Err != nil || time.Since(s.At) > Patience+s.rest() }

// rest returns the minimum time until the source is asked again.
func (s Sample[T]) rest() time.Duration {
	if s.Took >= slow {
		return idleInterval
	}
	return 0
}

// Add makes the sampler ask a source.
func Add[T any](s *Sampler, ask func(context.Context) (T, error)) *Latest[T] {
	l := &Latest[T]{sampler: s, kick: make(kick, 1), next: make(chan struct{})}
	s.mu.Lock()
	s.kicks = append(s.kicks, l.kick)
	s.mu.Unlock()
	s.running.Go(func() { l.run(ask) })
	return l
}

func (l *Latest[T]) run(ask func(context.Context) (T, error)) {
	for l.sampler.ctx.Err() == nil {
		l.mu.Lock()
		ended := l.next
		l.asked, l.running, l.next = time.Now(), ended, make(chan struct{})
		l.mu.Unlock()
		ctx, cancel := context.WithTimeout(l.sampler.ctx, askTimeout)
		value, err := ask(ctx)
		cancel()
		l.mu.Lock()
		l.running, l.sample.Err = nil, err
		if err == nil {
			now := time.Now()
			l.sample = Sample[T]{Value: value, At: now, Took: now.Sub(l.asked)}
		} else if l.sample.Failing.IsZero() {
			l.sample.Failing = l.asked
		}
		l.mu.Unlock()
		close(ended)
		l.sampler.announce()
		// Opening a page kicks, so that the interval is computed again. Intervals begin at multiples of their length. So all sources are asked at the
		// same times, however long their answers take, and an open page is rendered once for all answers.
		interval, now := max(l.sampler.interval(), l.Get().rest()), time.Now()
		select {
		case <-l.sampler.ctx.Done():
		case <-l.kick:
		case <-time.After(now.Truncate(interval).Add(interval).Sub(now)):
		}
	}
}

// Get returns the last sample without waiting.
func (l *Latest[T]) Get() Sample[T] {
	l.mu.Lock()
	defer l.mu.Unlock()
	sample := l.sample
	if sample.Failing.IsZero() && l.running != nil && time.Since(l.asked) >= Patience {
		sample.Failing = l.asked
	}
	return sample
}

// Fresh returns a sample that is at most a second old, or older if the source is slow. If there is none, it asks the source and waits for the answer,
// for at most [Patience]. If the last request failed, it does not wait, and returns the last sample with the error.
func (l *Latest[T]) Fresh(ctx context.Context) Sample[T] {
	if sample := l.Get(); sample.Err != nil || time.Since(sample.At) <= max(current, sample.rest()) {
		return sample
	}
	l.mu.Lock()
	running := l.running
	l.mu.Unlock()
	if running == nil {
		return l.Next(ctx)
	}
	return l.await(ctx, running)
}

// Next returns the sample of a request that starts after the call, so that it shows the effect of an action. It waits for at most [Patience].
func (l *Latest[T]) Next(ctx context.Context) Sample[T] {
	l.mu.Lock()
	next := l.next
	l.mu.Unlock()
	l.kick.now()
	return l.await(ctx, next)
}

// await waits for the end of a request, and returns the last sample.
func (l *Latest[T]) await(ctx context.Context, ended <-chan struct{}) Sample[T] {
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	select {
	case <-ended:
	case <-ctx.Done():
	}
	return l.Get()
}
