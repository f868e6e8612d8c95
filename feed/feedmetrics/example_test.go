package feedmetrics_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/jetpull/jetpull/feed"
	"github.com/jetpull/jetpull/feed/feedmetrics"
)

// A program registers the metrics of its store and its watchers.
func ExampleNew() {
	dir, err := os.MkdirTemp("", "feed")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(dir) }()
	store, err := feed.Open(context.Background(), "sqlite:"+filepath.Join(dir, "feed.db"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = store.Close() }()

	registry := prometheus.NewRegistry()
	registry.MustRegister(feedmetrics.New(store))
	families, err := registry.Gather()
	fmt.Println(len(families) > 0, err)
	// Output: true <nil>
}
