package jsstream

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull/internal/clock"
	"github.com/jetpull/jetpull/internal/watch"
)

// clockEvery is how often the server's clock is read, because it may be set, and another server may become the leader.
const clockEvery = 10 * time.Second

// FollowClock reads the clock of a stream's leader, whose times the stream contains, and repeats that until run ends. It returns after the first
// reading. wait waits for the end of the readings. It is nil if none was started.
func FollowClock(ctx, run context.Context, js jetstream.JetStream, stream string, c *clock.Clock) (wait func(), err error) {
	read := func(ctx context.Context) error {
		requested := time.Now()
		s, err := js.Stream(ctx, stream)
		if err == nil {
			c.Set(s.CachedInfo().TimeStamp, requested)
		}
		return err
	}
	if err := Insist(ctx, read); err != nil {
		return nil, fmt.Errorf("read the server's clock: %w", err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		watch.Every(run, clockEvery, func() {
			ctx, cancel := context.WithTimeout(run, AttemptTimeout)
			defer cancel()
			_ = read(ctx) // without an answer, the monotonic clock continues
		})
	}()
	return func() { <-ended }, nil
}
