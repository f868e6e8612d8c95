package state

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull/console/internal/view"
)

// DefaultLag is how long the oldest message of a consumer may wait, unless the consumer's metadata set another limit as [MetadataLag].
const DefaultLag = 2 * time.Minute

// MetadataLag is the metadata key of a consumer's limit, such as jetpull.lag.warn=5m.
const MetadataLag = "jetpull.lag.warn"

// LagLimit returns the limit in a consumer's metadata. If it is not a duration above 0, LagLimit returns the default.
func LagLimit(metadata map[string]string) time.Duration {
	if d, err := time.ParseDuration(metadata[MetadataLag]); err == nil && d > 0 {
		return d
	}
	return DefaultLag
}

// Consumer is a consumer of a stream, with values that follow from several observations.
type Consumer struct {
	*jetstream.ConsumerInfo
	Rate float64 // deliveries per second
	// Next is when the oldest undelivered message was stored, or zero if there is none or it is not known. Lag is how long it has waited.
	Next   time.Time
	Lag    time.Duration // may be NotKnown
	Growth Growth
}

// slowDrain is the maximum time in which a backlog should end at the current rate.
const slowDrain = time.Hour

// Of returns the state of the consumer.
func (c Consumer) Of() State {
	waiting := waits(c.NumPending, "message")
	lag := ""
	if !c.Next.IsZero() && c.NumPending > 0 {
		lag = ", the oldest stored " + view.At(c.Next)
	}
	limit, push := LagLimit(c.Config.Metadata), c.Config.DeliverSubject != ""
	behind := c.NumPending > 0 && c.Lag > limit
	switch {
	case Leaderless(c.Cluster):
		return State{Red, "no leader", "No server leads this consumer, so it delivers nothing. Too few of its servers are running."}
	case c.Paused:
		until := ""
		if end := c.Config.PauseUntil; end != nil {
			until = ", and resumes " + view.At(*end)
		}
		return State{Amber, "paused", "Paused" + until + "; " + waiting + lag + "."}
	case push && !c.PushBound && c.NumPending > 0:
		return State{Red, "no subscriber", "Nobody subscribes to the delivery subject, and " + waiting + lag + "."}
	case !push && c.NumPending > 0 && c.NumWaiting == 0 && c.NumAckPending == 0:
		return State{Red, "no worker", "No client pulls, and " + waiting + lag + "."}
	case behind && c.Growth >= Grows:
		return State{Red, "falls behind", fmt.Sprintf("The backlog grows: %s%s. The limit is %s.", waiting, lag, view.Span(limit))}
	case c.Config.MaxAckPending > 0 && c.NumAckPending >= c.Config.MaxAckPending && c.NumPending > 0:
		return State{Amber, "at its limit", fmt.Sprintf("%d messages are delivered and not acknowledged, which is the limit, so delivery waits for "+
			"acknowledgements; %s%s.", c.NumAckPending, waiting, lag)}
	case c.Growth == GrowsLong:
		return State{Amber, "backlog grows", fmt.Sprintf("The backlog has grown for %s: %s%s.", view.Span(longGrowth), waiting, lag)}
	case c.Rate > 0 && float64(c.NumPending)/c.Rate > slowDrain.Seconds():
		return State{Amber, "slow", fmt.Sprintf("%s%s. At %s the backlog ends in more than %s.", waiting, lag, view.Rate(c.Rate).Text,
			view.Span(slowDrain))}
	case behind && c.Growth != Falls:
		return State{Amber, "behind", fmt.Sprintf("%s%s. The limit is %s.", waiting, lag, view.Span(limit))}
	case c.NumRedelivered > 0:
		return State{Amber, "redelivering", view.CountIs(uint64(c.NumRedelivered), "unacknowledged message") +
			" redelivered: a handler fails, or is slower than the acknowledgement wait."}
	case c.NumPending > 0 && c.Lag == NotKnown:
		return State{Unknown, "not known", waiting + ". How long the oldest has waited is not known now."}
	case c.NumPending > 0 || c.NumAckPending > 0 || c.Rate > 0:
		return State{Green, "working", fmt.Sprintf("%s delivered and not acknowledged yet, %s%s.", view.CountIs(uint64(c.NumAckPending), "message"),
			waiting, lag)}
	case !push && c.NumWaiting == 0:
		return State{Idle, "idle, no worker", "Nothing waits, and no client pulls."}
	}
	return State{Idle, "idle", "Nothing waits."}
}

// Growth is how a backlog develops.
type Growth int

// The kinds of growth.
const (
	GrowthUnknown Growth = iota // it was not observed for long enough
	Falls
	Steady
	Grows     // for shortGrowth
	GrowsLong // for longGrowth
)

const (
	shortGrowth = time.Minute
	longGrowth  = 5 * time.Minute
	lowSpan     = 20 * time.Second
)

// Trend observes a backlog. Only its lowest value in each 20 s counts, so that batches, which come and go, do not count as growth. The zero Trend has
// observed nothing. A Trend is immutable.
type Trend struct {
	lows  []uint64 // oldest first; the last one is of the span that started at began
	began time.Time
}

// Next returns the trend with one more value. After a gap, it starts again.
func (t Trend) Next(now time.Time, backlog uint64) Trend {
	passed := now.Sub(t.began)
	if len(t.lows) == 0 || passed >= 2*lowSpan || passed < 0 {
		return Trend{lows: []uint64{backlog}, began: now.Truncate(lowSpan)}
	}
	lows := slices.Clone(t.lows)
	if passed < lowSpan {
		lows[len(lows)-1] = min(lows[len(lows)-1], backlog)
		return Trend{lows, t.began}
	}
	lows = append(lows, backlog)
	return Trend{lows[max(0, len(lows)-int(longGrowth/lowSpan)-1):], t.began.Add(lowSpan)}
}

// Growth returns how the backlog develops.
func (t Trend) Growth() Growth {
	if t.over(longGrowth) == Grows {
		return GrowsLong
	}
	return t.over(shortGrowth)
}

// over returns how the backlog has developed over a time. It grows if its lowest value rises from the first third of that time to the second, and
// from the second to the third.
func (t Trend) over(d time.Duration) Growth {
	n := int(d / lowSpan)
	if len(t.lows) <= n { // the last span has not ended
		return GrowthUnknown
	}
	last := t.lows[len(t.lows)-1-n : len(t.lows)-1]
	a, b, c := slices.Min(last[:n/3]), slices.Min(last[n/3:2*n/3]), slices.Min(last[2*n/3:])
	switch {
	case a < b && b < c:
		return Grows
	case a > c:
		return Falls
	}
	return Steady
}

// Set is a set of partitions of a stream.
type Set struct {
	// Err is why the partitions are not known, or nil.
	Err     error
	TTL     time.Duration
	Pending uint64
	// Partitions contains the known partitions, and Counts how many of them each member has.
	Partitions []Partition
	Counts     []int
}

// Partition is a partition of a set.
type Partition struct {
	Number   int
	Consumer State
	// Free is how long it has had no owner. 0 means that it has one.
	Free time.Duration
}

// Of returns the state of the set: that of its worst partition.
func (s Set) Of() State {
	waiting := waits(s.Pending, "message")
	free, worst := 0, State{Level: Idle}
	var longest, bad Partition
	for _, p := range s.Partitions {
		if p.Free > 0 {
			free++
		}
		if p.Free > longest.Free {
			longest = p
		}
		if p.Free == 0 && p.Consumer.Level < worst.Level { // the consumer of a partition without an owner has no client
			worst, bad = p.Consumer, p
		}
	}
	as := State{worst.Level, cmp.Or(worst.Word, "not known"), ""}
	as.Sentence = fmt.Sprintf("Partition %d: %s", bad.Number, cmp.Or(worst.Sentence, "Its state is not known now."))
	switch {
	case s.Err != nil:
		return State{Unknown, "not known", "The state of the partitions is not known: " + s.Err.Error()}
	case len(s.Counts) == 0 && s.Pending > 0:
		return State{Red, "no member", "No member works on the partitions, and " + waiting + "."}
	case len(s.Counts) == 0:
		return State{Idle, "no member", "No member works on the partitions. Nothing waits."}
	case longest.Free > s.TTL:
		return State{Red, "no owner", fmt.Sprintf("Partition %d has had no owner for longer than the TTL, %s; %s.", longest.Number,
			view.Span(s.TTL), waiting)}
	case worst.Level <= Unknown:
		return as
	case free > 0:
		return State{Amber, "changing", fmt.Sprintf("%s without an owner: a member takes them within the TTL; %s.",
			view.CountIs(uint64(free), "partition"), waiting)}
	case slices.Max(s.Counts)-slices.Min(s.Counts) > 1:
		return State{Amber, "uneven", fmt.Sprintf("One member has %s, and another has %d; %s.", view.Count(uint64(slices.Max(s.Counts)), "partition"),
			slices.Min(s.Counts), waiting)}
	case worst.Level == Amber:
		return as
	}
	return State{Green, "working", fmt.Sprintf("Each partition has an owner; %s.", waiting)}
}
