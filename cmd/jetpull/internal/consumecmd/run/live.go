package run

import (
	"context"
	"fmt"
	"time"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
	"github.com/jetpull/jetpull/internal/progress"
)

const (
	// liveEvery is how often the live line is drawn, and backlogEvery how often the server is asked for the backlog.
	liveEvery    = 500 * time.Millisecond
	backlogEvery = 2 * time.Second
)

// live shows how a run without an end goes, until ctx ends, and says then what it waits for.
func (r *Run) live(ctx context.Context, sub *jetpull.Subscription) {
	tick := time.NewTicker(liveEvery)
	defer tick.Stop()
	var asked time.Time
	pending, recent := "", rate{}
	for ctx.Err() == nil {
		if time.Since(asked) >= backlogEvery {
			asked = time.Now()
			if info, err := sub.Info(ctx); err == nil {
				pending = progress.Count(info.NumPending) + " pending"
			}
		}
		r.line.Set(r.state(&recent, pending)...)
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
	r.line.Clear()
}

// state is what came of the messages so far, the most important first.
func (r *Run) state(recent *rate, pending string) (parts []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.tally
	parts = append(parts, progress.Count(t.Acked)+" handled", progress.Count(recent.add(time.Now(), t.Acked+t.Failed+t.Terminated))+"/s")
	if failed := t.Failed + t.Terminated; failed > 0 {
		parts = append(parts, progress.Count(failed)+" failed")
	}
	if pending != "" {
		parts = append(parts, pending)
	}
	return append(parts, fmt.Sprintf("%d in flight", r.running))
}

// rateOver is the time over which the live line counts: longer, and it would show what was, not what is.
const rateOver = 3 * time.Second

// rate is how fast a count grows at present.
type rate struct{ samples []sample }

type sample struct {
	at time.Time
	n  int
}

// add notes that the count was n, and returns by how much it grew a second within rateOver.
func (r *rate) add(now time.Time, n int) int64 {
	r.samples = append(r.samples, sample{now, n})
	for len(r.samples) > 2 && now.Sub(r.samples[1].at) >= rateOver {
		r.samples = r.samples[1:]
	}
	first := r.samples[0]
	return progress.Rate(int64(n-first.n), now.Sub(first.at))
}

// stopping says, when the run is interrupted, what it waits for.
func (r *Run) stopping() {
	r.mu.Lock()
	running := r.running
	r.mu.Unlock()
	if running == 0 || r.quiet || r.json {
		return
	}
	cli.Tell(r.errOut, "Stopping: %d messages are being handled and have %v; interrupt again to end at once\n", running, r.Drain)
}
