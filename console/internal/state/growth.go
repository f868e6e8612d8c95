package state

import "time"

// Growth is how a backlog develops.
type Growth int

// The kinds of growth.
const (
	GrowthUnknown Growth = iota // it has not been observed for long enough
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

// Trend observes a backlog. Its lowest value of each 20 s counts, so that batches, which come and go, are no growth. The zero Trend has observed
// nothing. A Trend does not change.
type Trend struct {
	lows  []uint64 // oldest first; the last is that of the span which began at began
	began time.Time
}

// Next is the trend with one more value. After a gap it begins again.
func (t Trend) Next(now time.Time, backlog uint64) Trend {
	passed := now.Sub(t.began)
	if len(t.lows) == 0 || passed >= 2*lowSpan || passed < 0 {
		return Trend{lows: []uint64{backlog}, began: now.Truncate(lowSpan)}
	}
	lows := append([]uint64(nil), t.lows...)
	if passed < lowSpan {
		lows[len(lows)-1] = min(lows[len(lows)-1], backlog)
		return Trend{lows, t.began}
	}
	lows = append(lows, backlog)
	if spans := int(longGrowth/lowSpan) + 1; len(lows) > spans {
		lows = lows[len(lows)-spans:]
	}
	return Trend{lows, t.began.Add(lowSpan)}
}

// Growth is how the backlog develops. A backlog grows for a time if its lowest value rises from the first third of that time to the second, and from
// the second to the last.
func (t Trend) Growth() Growth {
	if len(t.lows) == 0 {
		return GrowthUnknown
	}
	whole := t.lows[:len(t.lows)-1] // the last span has not ended
	thirds := func(over time.Duration) (a, b, c uint64, known bool) {
		n := int(over / lowSpan)
		if len(whole) < n {
			return 0, 0, 0, false
		}
		last := whole[len(whole)-n:]
		return lowest(last[:n/3]), lowest(last[n/3 : 2*n/3]), lowest(last[2*n/3:]), true
	}
	if a, b, c, known := thirds(longGrowth); known && a < b && b < c {
		return GrowsLong
	}
	a, b, c, known := thirds(shortGrowth)
	switch {
	case !known:
		return GrowthUnknown
	case a < b && b < c:
		return Grows
	case a > c:
		return Falls
	}
	return Steady
}

func lowest(values []uint64) uint64 {
	low := values[0]
	for _, v := range values {
		low = min(low, v)
	}
	return low
}
