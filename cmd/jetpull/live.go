package main

import (
	"context"
	"fmt"
	"sync/atomic"
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

// lastWords is what a run still says when a second signal ends the process; nil: nothing.
var lastWords atomic.Pointer[func()]

// live shows how a run without an end goes, until ctx ends, and says then what it waits for.
func (w *work) live(ctx context.Context, sub *jetpull.Subscription) {
	tick := time.NewTicker(liveEvery)
	defer tick.Stop()
	var asked time.Time
	pending, begin := "", time.Now()
	for ctx.Err() == nil {
		if time.Since(asked) >= backlogEvery {
			asked = time.Now()
			if info, err := sub.Info(ctx); err == nil {
				pending = fmt.Sprintf(", %s pending", progress.Count(info.NumPending))
			}
		}
		w.line.Set(w.state(time.Since(begin)) + pending)
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
	w.line.Clear()
}

// state is what came of the messages so far.
func (w *work) state(took time.Duration) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	t := w.tally
	return fmt.Sprintf("%s handled, %s failed, %d in flight, %s msg/s", progress.Count(t.Acked), progress.Count(t.Failed+t.Terminated), w.running,
		progress.Count(progress.Rate(int64(t.Acked+t.Failed+t.Terminated), took)))
}

// stopping says, when the run is interrupted, what it waits for.
func (w *work) stopping() {
	w.mu.Lock()
	running := w.running
	w.mu.Unlock()
	if running == 0 || w.quiet || w.json {
		return
	}
	cli.Tell(w.errOut, "Stopping: %d messages are being handled and have %v; interrupt again to end at once\n", running, w.drain)
}
