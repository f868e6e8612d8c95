package page

import (
	"context"

	"github.com/jetpull/jetpull/console/internal/view"
	"github.com/jetpull/jetpull/feed"
)

// FeedSource reads and changes the partitions of a feed. A [feed.Store] is one.
type FeedSource interface {
	Backlog(ctx context.Context) (feed.Backlog, error)
	Partitions(ctx context.Context, q feed.Query) ([]feed.Partition, error)
	Partition(ctx context.Context, id string) (feed.Partition, error)
	Counts(ctx context.Context, partition string) (map[int]feed.Counts, error)
	Items(ctx context.Context, q feed.Query) ([]feed.Item, error)
	Item(ctx context.Context, partition, id string) (feed.Item, error)
	RetryFailed(ctx context.Context, partition string, items ...string) (int, error)
	SkipFailed(ctx context.Context, partition string, items ...string) (int, error)
	Seal(ctx context.Context, partition string) error
	ClosePartition(ctx context.Context, partition string) error
	Reopen(ctx context.Context, partition string) error
	Advance(ctx context.Context, partition string, gate int) error
}

// ready opens the feed unless it is open. One page or sample does that at a time.
func (f *Feed) ready(ctx context.Context) error {
	select {
	case f.opening <- struct{}{}:
		defer func() { <-f.opening }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if f.source != nil {
		return nil
	}
	source, err := f.open(ctx)
	if err == nil {
		f.source = source
	}
	return err
}

// opened returns a page of a feed that is open.
func (f *Feed) opened(build Func) Func {
	return func(ctx context.Context, r Request) (*view.Page, error) {
		if err := f.ready(ctx); err != nil {
			return nil, feedError(err, "feed")
		}
		return build(ctx, r)
	}
}
