package partition

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull"
)

// group is the priority group of a set's consumers.
const group = "member"

// consumers are the queues on a server.
type consumers struct {
	*Set
	options []jetpull.Option
}

func (s *Set) consumer(n int) string { return s.cfg.Name + "-" + strconv.Itoa(n) }

// clear unpins before it resets: a process that was stopped can still have pulls open, and the reset would send messages to it.
func (c *consumers) clear(ctx context.Context, n int) error {
	if err := jetpull.Unpin(ctx, c.js, c.stream, c.consumer(n), group); err != nil {
		if _, _, other := c.floor(ctx, n); other != nil {
			return other // which says more: no consumer, no answer to an unpin
		}
		return err
	}
	_, pending, err := c.floor(ctx, n)
	if err != nil || !pending {
		return err
	}
	if c.resets {
		c.counts.resets.Add(1)
		_, err := c.js.ResetConsumer(ctx, c.stream, c.consumer(n))
		return err
	}
	select { // the server then redelivers before it delivers others
	case <-time.After(c.cfg.AckWait + time.Second):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (c *consumers) floor(ctx context.Context, n int) (seq uint64, pending bool, err error) {
	consumer, err := c.js.Consumer(ctx, c.stream, c.consumer(n))
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		return 0, false, fmt.Errorf("partition: consumer %q on stream %q: %w; open the set again to create it", c.consumer(n), c.stream, err)
	}
	if err != nil {
		return 0, false, fmt.Errorf("partition: consumer %q on stream %q: %w", c.consumer(n), c.stream, err)
	}
	info := consumer.CachedInfo()
	return info.AckFloor.Stream, info.NumAckPending > 0, nil
}

// consume stops at a delivery that was lost with a connection or a server. Newer messages would come before it.
func (c *consumers) consume(ctx context.Context, n int, h jetpull.Handler) error {
	sub, err := jetpull.Subscribe(context.WithoutCancel(ctx), c.js, c.stream, c.consumer(n), jetpull.Group(group))
	if err != nil {
		return err
	}
	consuming, stop := context.WithCancel(ctx)
	defer stop()
	bySubject := jetpull.OrderedBy(func(m *jetpull.Msg) string { return m.Subject() })
	err = sub.Consume(consuming, func(ctx context.Context, m *jetpull.Msg) error {
		if sub.Missed() > 0 {
			stop()
			return jetpull.Retry(time.Second, errMissed)
		}
		return h(ctx, m)
	}, append([]jetpull.Option{bySubject}, c.options...)...)
	if err == nil && ctx.Err() == nil {
		err = errMissed
	}
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.cfg.TTL)
	defer cancel()
	return errors.Join(err, sub.Close(closing))
}
