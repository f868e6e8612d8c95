package main

import (
	"context"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/feed"
)

// TestHandler runs a watcher that posts the items of the tutorial.
func TestHandler(t *testing.T) {
	store, err := feed.Open(t.Context(), "sqlite:"+filepath.Join(t.TempDir(), "feed.db"))
	require.NoError(t, err)
	defer store.Close()
	items := []feed.Item{{Gate: 1, Data: []byte("ranking")}}
	for n := range 100 {
		items = append(items, feed.Item{Data: []byte("resume " + strconv.Itoa(n+1))})
	}
	_, err = store.CreatePartition(t.Context(), feed.Partition{ID: "resumes", Sealed: true}, items...)
	require.NoError(t, err)
	srv := httptest.NewServer(handler(store))
	defer srv.Close()
	p, err := feed.NewHTTPProcessor(srv.URL)
	require.NoError(t, err)

	list, err := os.Create(filepath.Join(t.TempDir(), "list"))
	require.NoError(t, err)
	defer list.Close()
	stdout := os.Stdout
	os.Stdout = list
	defer func() { os.Stdout = stdout }()
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- feed.NewWatcher(store, p, feed.AutoClose()).Run(ctx) }()
	require.Eventually(t, func() bool {
		p, err := store.Partition(t.Context(), "resumes")
		return err == nil && p.Status == feed.Complete
	}, 30*time.Second, 10*time.Millisecond)
	stop()
	require.NoError(t, <-done)
	text, err := os.ReadFile(list.Name())
	require.NoError(t, err)
	require.Regexp(t, `^ 1\. \d{3} resume \d+\n( \d\. .*\n){8}10\. \d{3} resume \d+\n$`, string(text))
}
