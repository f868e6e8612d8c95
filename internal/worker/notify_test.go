package worker

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestOnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []error
		var log bytes.Buffer
		logged := func(text string) int { return strings.Count(log.String(), text) }
		release := make(chan struct{})
		r := &Reporter{Log: slog.New(slog.NewTextHandler(&log, nil)), Notifier: &Notifier{Start: notify}, OnError: func(err error) {
			<-release
			got = append(got, err)
		}}
		all := make([]error, problemsMost+3)
		for i := range all {
			all[i] = errors.New("problem")
			r.Error(all[i])
			if i == 0 {
				synctest.Wait() // it is called, and waits no longer
			}
		}
		close(release)
		synctest.Wait()
		require.Equal(t, all[:problemsMost+1], got, "in order, and no more wait")
		require.Equal(t, 1, logged("OnError or OnEvent is too slow"))
		for _, report := range []func(){func() { r.Problem(all[0]) }, func() { r.Problem(nil) }} {
			report()
			report()
		}
		synctest.Wait()
		require.Equal(t, []int{1, 1}, []int{logged("pulling is disturbed"), logged("no longer disturbed")})
		require.Len(t, got, problemsMost+3, "it hears of all again")
	})
}

func TestWindow(t *testing.T) {
	const ms = time.Millisecond
	for name, tt := range map[string]struct {
		w       window
		starved int // times
		each    time.Duration
		want    int
	}{
		"doubles while workers starve":        {window{}, 3, 0, 8 * 16},
		"up to what may be on order":          {window{}, 9, 0, 1000},
		"is enough for 10 ms":                 {window{workers: 64}, 0, ms, 640},
		"grows for no slow handler":           {window{}, 0, 20 * ms, 16},
		"within a quarter of AckWait":         {window{waitMost: 250 * ms}, 5, 20 * ms, 12},
		"of several workers":                  {window{waitMost: 250 * ms, workers: 4}, 5, 20 * ms, 50},
		"a message at hand for each at least": {window{waitMost: ms, workers: 4}, 5, time.Second, 5},
		"though that is over the bound":       {window{workers: 1200}, 1, 0, 1201},
		"fixed":                               {window{fixed: 16}, 5, time.Microsecond, 16},
	} {
		w := &tt.w
		w.workers, w.size, w.bound = max(1, w.workers), 16, 1000
		for range tt.starved {
			w.taken = true
			w.starved()
		}
		for range 30 {
			if tt.each > 0 {
				w.measured(1, tt.each)
			}
		}
		require.Equal(t, tt.want, w.size, name)
	}
	w := &window{workers: 1, size: 16, bound: 1000, waitMost: time.Second}
	for each, want := range map[time.Duration]int{100 * ms: 10, ms: 1000} {
		for range 60 {
			w.taken = true
			w.starved()
			w.measured(1, each)
		}
		require.InDelta(t, want, w.size, 60, "with handlers of %v", each)
	}
	require.Equal(t, []int{666, 9000, 9000, 1}, []int{
		WindowMost(1000, 9000, 0), WindowMost(1000, 9000, 5*ms), WindowMost(0, 9000, 0),
		WindowMost(2, 9000, 0),
	})
}

func TestDefaultDelays(t *testing.T) {
	p := &Pool[*msg]{}
	for attempts, want := range map[int]time.Duration{0: time.Second, 1: time.Second, 2: 2 * time.Second, 4: 8 * time.Second, 99: time.Minute} {
		spread := map[time.Duration]bool{}
		for range 20 {
			delay := p.delay(Consumer{}, attempts)
			require.InDelta(t, want, delay, float64(want)/5, "after %d attempts", attempts)
			spread[delay.Round(want/100)] = true
		}
		require.Greater(t, len(spread), 5, "messages that failed together are not tried again together")
	}
}
