package measure

import (
	"runtime"
	"slices"
	"time"
)

// Sample is what one contender needed for one round.
type Sample struct {
	Messages int           `json:"messages"`
	Elapsed  time.Duration `json:"elapsed_ns"`
	CPU      time.Duration `json:"cpu_ns"` // user and system time of the measuring process
	Allocs   uint64        `json:"allocs"`
	Bytes    uint64        `json:"bytes"`
	Calls    int           `json:"calls"` // deliveries seen by the contender; more than Messages means duplicates
}

// Metric names one figure that is derived from a sample.
type Metric string

// The figures that tables show and targets judge. All but the rate are better when they are lower.
const (
	Rate      Metric = "msgs/s"
	TimePer   Metric = "ns/msg"
	CPUPer    Metric = "CPU ns/msg"
	AllocsPer Metric = "allocs/msg"
	BytesPer  Metric = "bytes/msg"
	CallsPer  Metric = "handler calls/msg"
)

// Of returns the metric's value for one sample.
func (m Metric) Of(s Sample) float64 {
	n := float64(s.Messages)
	switch m {
	case Rate:
		return n / s.Elapsed.Seconds()
	case TimePer:
		return float64(s.Elapsed) / n
	case CPUPer:
		return float64(s.CPU) / n
	case AllocsPer:
		return float64(s.Allocs) / n
	case BytesPer:
		return float64(s.Bytes) / n
	case CallsPer:
		return float64(s.Calls) / n
	}
	panic("measure: unknown metric " + string(m))
}

// meter takes the difference of clock, rusage and allocation counters between start and stop.
type meter struct {
	wall   time.Time
	cpu    time.Duration
	mem    runtime.MemStats
	sample Sample
}

// start collects the garbage of set-up first, so that no round pays for the one before it.
func (m *meter) start() {
	runtime.GC()
	runtime.ReadMemStats(&m.mem)
	m.cpu = processCPU()
	m.wall = time.Now()
}

// stop reads the counters in the reverse order of start, so that reading the memory statistics is in neither time.
func (m *meter) stop() {
	elapsed := time.Since(m.wall)
	cpu := processCPU() - m.cpu
	var now runtime.MemStats
	runtime.ReadMemStats(&now)
	m.sample.Elapsed = elapsed
	m.sample.CPU = cpu
	m.sample.Allocs = now.Mallocs - m.mem.Mallocs
	m.sample.Bytes = now.TotalAlloc - m.mem.TotalAlloc
}

// Spread is the median of several rounds with its extremes.
type Spread struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

// spreadOf returns the zero Spread for no values.
func spreadOf(values []float64) Spread {
	if len(values) == 0 {
		return Spread{}
	}
	return Spread{Median: median(values), Min: slices.Min(values), Max: slices.Max(values)}
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	mid := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[mid]
	}
	return (sorted[mid-1] + sorted[mid]) / 2
}

// Spread returns the metric's spread over several rounds.
func (m Metric) Spread(samples []Sample) Spread {
	values := make([]float64, len(samples))
	for i, s := range samples {
		values[i] = m.Of(s)
	}
	return spreadOf(values)
}

// Ratio divides round by round and then takes the median. Contenders of one round run within seconds of each other, so
// a machine that slows down half-way through the run moves both sides of every quotient. With limit > 0 a rival's
// figure counts for no more than that.
func (m Metric) Ratio(ours, rival []Sample, limit float64) Spread {
	quotients := make([]float64, 0, len(ours))
	for i := range min(len(ours), len(rival)) {
		against := m.Of(rival[i])
		if limit > 0 {
			against = min(against, limit)
		}
		if against == 0 {
			continue
		}
		quotients = append(quotients, m.Of(ours[i])/against)
	}
	return spreadOf(quotients)
}
