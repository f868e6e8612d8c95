package store

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/jetpull/jetpull/internal/jsstream"
)

// lookEvery is how often the clock of the server is looked at: it may be set, and another server may lead.
const lookEvery = 10 * time.Second

// clock is the server's, which has stamped what is in the streams. That of this process may be another, or be set.
type clock struct {
	mu     sync.Mutex
	server time.Time
	seen   time.Time // when it said so, by the monotonic clock of this process
}

// Now is the time by the clock of the server. It is never ahead of it, and behind by the time that an answer takes.
func (s *base) Now() time.Time {
	c := &s.clock
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.server.Add(time.Since(c.seen))
}

// followClock looks at the clock of the server, and again until run ends.
func (s *base) followClock(ctx, run context.Context) error {
	if err := jsstream.Insist(ctx, s.lookAtClock); err != nil {
		return err
	}
	s.running.Go(func() {
		every := time.NewTicker(lookEvery)
		defer every.Stop()
		for {
			select {
			case <-run.Done():
				return
			case <-every.C:
				_ = s.lookAtClock(run) // without an answer the monotonic clock goes on
			}
		}
	})
	return nil
}

func (s *base) lookAtClock(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	stream, err := s.js.Stream(ctx, s.TTLStream())
	if err != nil {
		return fmt.Errorf("%w: ask for the time: %w", ErrUnavailable, err)
	}
	c := &s.clock
	c.mu.Lock()
	defer c.mu.Unlock()
	c.server, c.seen = stream.CachedInfo().TimeStamp, time.Now()
	return nil
}
