package jsstream

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull/internal/clock"
	"github.com/jetpull/jetpull/internal/watch"
)

// clockEvery is how often the server's clock is read, because it may be set, and another server may become the leader.
const clockEvery = 10 * time.Second

// FollowClock reads the clock of a stream's leader, whose times the stream contains, and repeats that until run ends. It returns after the first
// reading. Its goroutine is in running.
func FollowClock(ctx, run context.Context, running *sync.WaitGroup, js jetstream.JetStream, stream string, c *clock.Clock) error {
	read := func(ctx context.Context) error {
		requested := time.Now()
		s, err := js.Stream(ctx, stream)
		if err == nil {
			c.Set(s.CachedInfo().TimeStamp, requested)
		}
		return err
	}
	if err := Insist(ctx, read); err != nil {
		return fmt.Errorf("read the server's clock: %w", err)
	}
	running.Go(func() {
		watch.Every(run, clockEvery, func() {
			ctx, cancel := context.WithTimeout(run, AttemptTimeout)
			defer cancel()
			_ = read(ctx) // without an answer, the monotonic clock continues
		})
	})
	return nil
}
