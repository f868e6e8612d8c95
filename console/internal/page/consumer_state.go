package page

import (
	"context"
	"math"
	"time"

	"github.com/jetpull/jetpull/console/internal/state"
)

// agesAtOnce bounds the messages that one sample reads to find out how old they are.
const agesAtOnce = 64

// age is when the first message after a sequence was stored; zero: there is none. It was read at a time.
type age struct {
	after    uint64
	at, read time.Time
}

// lag finds out the time of the oldest unacknowledged message, and how long the oldest pending one has waited. Reads is how many more messages this
// sample may read. A consumer for which there are none keeps what was measured last.
func (c *consumer) lag(ctx context.Context, source ConsumerSource, reads *int) {
	sequences, some := [2]uint64{c.AckFloor.Stream, c.Delivered.Stream}, [2]bool{c.NumAckPending > 0, c.NumPending > 0}
	for i, after := range sequences {
		switch {
		case !some[i]:
			c.ages[i] = age{}
		case *reads > 0 && (c.ages[i].read.IsZero() || c.ages[i].after != after):
			*reads--
			c.ages[i] = age{}
			if at, err := source.StoredAfter(ctx, c.ConsumerInfo, after); err == nil {
				c.ages[i] = age{after, at, c.seen}
			}
		}
	}
	if c.ages[0].after == c.AckFloor.Stream {
		c.oldest = c.ages[0].at
	}
	first := c.ages[1]
	switch {
	case c.NumPending == 0 || !first.read.IsZero() && first.at.IsZero():
		return
	case first.read.IsZero():
		c.Lag = state.NotKnown
		return
	case first.after == c.Delivered.Stream:
		first.read = c.seen
	}
	c.Lag = max(0, first.read.Sub(first.at))
	c.Next = c.seen.Add(-c.Lag)
}

// measure computes the rate of deliveries and how the backlog develops. A consumer that was recreated or reset starts again.
func (c *consumer) measure(before *consumer, now time.Time) {
	if before != nil && before.Created.Equal(c.Created) && before.Delivered.Consumer <= c.Delivered.Consumer {
		c.delivered, c.trend, c.ages = before.delivered, before.trend, before.ages
	}
	c.delivered, c.trend = c.delivered.plus(now, c.Delivered.Consumer), c.trend.Next(now, c.NumPending)
	c.Rate, c.Growth = c.delivered.rate, c.trend.Growth()
}

// unacknowledged is the age of the oldest unacknowledged message in seconds. It is not a number if that is not known.
func (c *consumer) unacknowledged() float64 {
	switch {
	case c.NumAckPending == 0:
		return 0
	case c.oldest.IsZero():
		return math.NaN()
	}
	return max(0, c.seen.Sub(c.oldest).Seconds())
}

// knownSeconds is a duration for a chart. It is not a number if it is not known.
func knownSeconds(d time.Duration) float64 {
	if d == state.NotKnown {
		return math.NaN()
	}
	return d.Seconds()
}
