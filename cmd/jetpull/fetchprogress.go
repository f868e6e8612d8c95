package main

import (
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/client"
	"github.com/jetpull/jetpull/internal/progress"
)

// fillPoll is how often a fetch that waits for all messages looks how many have come.
const fillPoll = 200 * time.Millisecond

// take fetches the messages. One that waits for all of them shows how many have come.
func (f *fetchFlags) take(cmd *cobra.Command, g *client.Globals, sub *jetpull.Subscription) ([]*jetpull.Msg, error) {
	if !f.fill || g.Quiet || g.JSON {
		return sub.Fetch(cmd.Context(), f.count, f.options(cmd)...)
	}
	bar := progress.New(cmd.ErrOrStderr(), "fetch", int64(f.count))
	defer bar.Clear()
	done := make(chan struct{})
	var watch sync.WaitGroup
	watch.Go(func() {
		tick := time.NewTicker(fillPoll)
		defer tick.Stop()
		for shown := uint64(0); ; {
			select {
			case <-done:
				return
			case <-tick.C:
			}
			came := sub.Stats().Messages
			bar.Add(int(came - shown))
			shown = came
		}
	})
	defer watch.Wait()
	defer close(done)
	return sub.Fetch(cmd.Context(), f.count, f.options(cmd)...)
}
