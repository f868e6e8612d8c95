package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/jetpull/jetpull/feed"
)

const (
	// The environment variables that make this program a watcher.
	watcherDB, watcherName = "DEMO_FEED_DB", "DEMO_FEED_WATCHER"
	// thinking is how long the classifier takes.
	thinking = 60 * time.Millisecond
	// concurrency is the number of résumés that a watcher classifies at a time.
	concurrency = 4
	// lease is the time after which another watcher takes over the partitions of a dead watcher.
	lease = 2 * time.Second
)

// call is a call of a watcher's processor. The watcher reports it as a line of JSON before the call begins.
type call struct {
	Watcher   string `json:"watcher"`
	Partition string `json:"partition"`
	Item      string `json:"item"`
	Gate      int    `json:"gate"`
	Attempt   int    `json:"attempt"`
}

// watch runs a watcher until in ends, also when the demo dies.
func watch(db, name string, in io.Reader, out io.Writer) error {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	store, err := feed.Open(ctx, "sqlite:"+db)
	if err != nil {
		return err
	}
	go func() {
		_, _ = io.Copy(io.Discard, in)
		stop()
	}()
	var mu sync.Mutex
	process := func(ctx context.Context, it feed.Item) (feed.Response, error) {
		line, err := json.Marshal(call{name, it.Partition, it.ID, it.Gate, it.Attempt})
		if err != nil {
			return feed.Response{}, err
		}
		mu.Lock()
		_, err = fmt.Fprintf(out, "%s\n", line)
		mu.Unlock()
		if err != nil {
			return feed.Response{}, err
		}
		return work(ctx, store, it)
	}
	w := feed.NewWatcher(store, feed.ProcessorFunc(process),
		feed.Concurrency(concurrency), feed.Lease(lease), feed.Poll(20*time.Millisecond, 200*time.Millisecond), feed.Steal(), feed.AutoClose(),
		feed.Backoff(func(int) time.Duration { return 300 * time.Millisecond }), feed.Logger(slog.New(slog.DiscardHandler)))
	return errors.Join(w.Run(ctx), store.Close())
}

// work processes an item at a gate: it classifies a résumé, or ranks the best of the partition.
func work(ctx context.Context, store *feed.Store, it feed.Item) (feed.Response, error) {
	var result any
	var err error
	if it.Gate == classifying {
		select {
		case <-time.After(thinking):
		case <-ctx.Done():
			return feed.Response{}, ctx.Err()
		}
		result, err = classify(it)
	} else {
		gate := classifying
		var items []feed.Item
		if items, err = store.Items(ctx, feed.Query{Partition: it.Partition, Gate: &gate, Limit: maxResumes}); err == nil {
			result, err = rank(items)
		}
	}
	if err != nil {
		return feed.Response{}, err
	}
	data, err := json.Marshal(result)
	return feed.Response{Done: true, Data: data}, err
}
