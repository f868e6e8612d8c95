package broker

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/broker/client"
	"github.com/jetpull/jetpull/broker/internal/domain"
)

var fullDay = flag.Bool("broker.day", false, "have TestRetentionLevelsOff work through 24 hours in steps of 5 minutes, with 100,000 messages, "+
	"and print its curve")

// day is the load on a broker in steps of virtual time. A step lasts as long as its messages take. Messages older than a number
// of steps are pruned.
type day struct {
	t                     *testing.T
	n                     *Node
	c                     *client.Client
	steps, perStep, keeps int
	payload               []byte
	ends                  []time.Time // of the past steps
}

// level is the memory and disk usage after a step.
type level struct{ heap, store int64 }

// step broadcasts messages, lets a pull and a push consumer work them off, replays some, cancels a schedule and, if prune is set,
// prunes old messages.
func (d *day) step(prune bool) level {
	t := d.t
	number := len(d.ends)
	var wg sync.WaitGroup
	for w := range 16 {
		wg.Go(func() {
			for i := w; i < d.perStep; i += 16 {
				if _, err := d.c.Broadcast(t.Context(), producer, client.Message{ID: fmt.Sprintf("%d-%d", number, i), Payload: d.payload}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	require.NoError(t, d.n.store.Messages.Schedule(t.Context(), domain.Message{ID: "later", Channel: "ch"}, time.Now().Add(time.Hour)))
	require.NoError(t, d.n.store.Messages.CancelScheduled(t.Context(), "ch", "later"))
	d.awaitDone()
	d.ends = append(d.ends, time.Now())
	if number%12 == 11 {
		location := startReplay(t, d.n, fmt.Sprintf(`{"Since":%q,"Rate":10000}`, d.ends[number-1].Format(time.RFC3339Nano)))
		waitUntil(t, func() bool { return replayOf(t, d.n, location).State == "DONE" }, "a replay does not end")
		d.awaitDone()
	}
	if prune && number >= d.keeps {
		// The clock selects the messages of exactly one step.
		pruned, err := d.n.broker.Pruner.PruneFinished(t.Context(), d.ends[number-d.keeps].Add(d.n.cfg.Prune.Retention))
		require.NoError(t, err)
		require.Equal(t, d.perStep, pruned)
	}
	return d.measure()
}

func (d *day) awaitDone() {
	d.t.Helper()
	waitUntil(d.t, func() bool {
		for _, k := range []string{"k", "pull"} {
			for _, c := range d.n.store.Index.CountJobs(mustConsumer(d.t, d.n, k).Number) {
				if c.Count > 0 && (c.Status == domain.Queued || c.Status == domain.Inflight) {
					return false
				}
			}
		}
		return true
	}, "jobs are not done")
}

// measure returns the live heap of broker, server and load, and the size of the store's files.
func (d *day) measure() (l level) {
	require.NoError(d.t, filepath.WalkDir(d.n.cfg.NATS.StoreDir, func(_ string, entry fs.DirEntry, err error) error {
		if err == nil && entry.Type().IsRegular() {
			var info fs.FileInfo
			if info, err = entry.Info(); err == nil {
				l.store += info.Size()
			}
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}))
	runtime.GC()
	runtime.GC() // the contents of a sync.Pool survive one collection
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	l.heap = int64(m.HeapAlloc)
	return l
}

// lowest returns the minimum of each measure: the part that is never freed. The server caches blocks for a while, and keeps
// deleted messages in files up to half a block, so both measures go up and down.
func lowest(levels []level) level {
	low := levels[0]
	for _, l := range levels {
		low = level{min(low.heap, l.heap), min(low.store, l.store)}
	}
	return low
}

// TestRetentionLevelsOff simulates a day in which messages arrive, fail, are replayed, and are pruned after a twelfth of the day.
// From the second third of the day to the last, the usage grows by less than a quarter of what a third without pruning adds.
func TestRetentionLevelsOff(t *testing.T) {
	if testing.Short() {
		t.Skip("what it weighs is another under the race detector; make test runs it without")
	}
	d := &day{t: t, steps: 36, perStep: 24, keeps: 3, payload: bytes.Repeat([]byte("x"), 32<<10)}
	if *fullDay {
		d.steps, d.perStep, d.keeps = 24*12, 350, 24
		d.payload = d.payload[:1<<10]
	}
	answer := bytes.Repeat([]byte("x"), 4<<10)
	// A message fails once at most: one that failed twice would be dead, and dead messages are retained.
	var seen sync.Map
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, again := seen.LoadOrStore(r.Header.Get("X-Broker-Message-ID"), true); !again && rand.N(20) == 0 {
			w.WriteHeader(http.StatusInternalServerError)
			_, _ = w.Write(answer)
		}
	}))
	defer receiver.Close()
	cfg := testConfig(t)
	cfg.Dispatch.MaxRetry, cfg.Dispatch.Backoff = 1, domain.Backoff{0}
	cfg.NATS.Sync = "2m" // the duration of syncs is not tested here
	var err error
	d.n, err = Start(t.Context(), cfg, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	defer stopNode(t, d.n)
	d.c = client.New(d.n.URL(), &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 32}})
	putConsumer(t, d.n, "k", receiver.URL, nil)
	putConsumer(t, d.n, "pull", receiver.URL, url.Values{"type": {"pull"}})
	ctx, cancel := context.WithCancel(t.Context())
	var pulling sync.WaitGroup
	pulling.Go(func() {
		err := d.c.Consumer("ch", "ct", "pull", "kt").Consume(ctx, func(context.Context, *client.Job) error { return nil }, client.Options{Concurrency: 8})
		if err != nil {
			t.Error(err)
		}
	})
	defer pulling.Wait()
	defer cancel()

	var levels []level
	begin := time.Now()
	for i := range d.steps {
		levels = append(levels, d.step(true))
		if i%(d.steps/12) == d.steps/12-1 {
			t.Logf("%6d messages, %6d kept: %6.2f MB of heap, %6.2f MB of store, after %s", (i+1)*d.perStep, d.n.store.Index.CountMessages("ch"),
				float64(levels[i].heap)/1e6, float64(levels[i].store)/1e6, time.Since(begin).Round(time.Millisecond))
		}
	}
	third := d.steps / 3
	middle, last := lowest(levels[third:2*third]), lowest(levels[2*third:])
	var without level
	for range third {
		without = d.step(false)
	}
	t.Logf("heap: lowest in the middle third %.2f MB, in the last %.2f, after as much without pruning %.2f", float64(middle.heap)/1e6,
		float64(last.heap)/1e6, float64(without.heap)/1e6)
	t.Logf("store: lowest in the middle third %.2f MB, in the last %.2f, after as much without pruning %.2f", float64(middle.store)/1e6,
		float64(last.store)/1e6, float64(without.store)/1e6)
	require.Less(t, last.heap-middle.heap, (without.heap-last.heap)/4)
	require.Less(t, last.store-middle.store, (without.store-last.store)/4)
}
