package page

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/console/internal/operation"
	"github.com/jetpull/jetpull/console/internal/sample"
)

// A feed that cannot be opened is opened by the next request, and then no more.
func TestFeedThatOpensLate(t *testing.T) {
	sampler := sample.New()
	defer sampler.Close()
	var mu sync.Mutex
	answers, opened := false, 0
	pages := NewFeed(sampler, func(context.Context) (FeedSource, error) {
		mu.Lock()
		defer mu.Unlock()
		if !answers {
			return nil, errors.New("no database")
		}
		opened++
		return newShelf(2), nil
	}, nil, operation.NewRunner(slog.New(slog.DiscardHandler))).Pages
	r := Request{Now: time.Now()}
	_, err := pages["partition"](t.Context(), r)
	require.ErrorContains(t, err, "no database")
	list, err := pages["feed"](t.Context(), r)
	require.NoError(t, err)
	require.Equal(t, "no database", list.Parts[1].Source.Error)
	mu.Lock()
	answers = true
	mu.Unlock()
	for range 2 {
		list, err = pages["feed"](t.Context(), r)
		require.NoError(t, err)
		require.Len(t, list.Parts[1].List.Rows, 2)
	}
	mu.Lock()
	defer mu.Unlock()
	require.Equal(t, 1, opened)
}
