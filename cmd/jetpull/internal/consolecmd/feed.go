package consolecmd

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jetpull/jetpull/console"
	"github.com/jetpull/jetpull/feed"
)

// openPatience is how long the start of the console waits for the database of a feed.
const openPatience = 2 * time.Second

// lateFeed is a feed whose database need not answer when the console starts: each request opens it until it is open. A connection that is
// lost later is the Store's own concern.
type lateFeed struct {
	dsn    string
	opened chan *feed.Store // has one element, which a request takes while it opens the database; nil: it is not open
}

var _ console.Feed = (*lateFeed)(nil)

// openFeed fails if no database can ever answer at the DSN. The caller closes the feed.
func openFeed(ctx context.Context, dsn string) (*lateFeed, error) {
	l := &lateFeed{dsn: dsn, opened: make(chan *feed.Store, 1)}
	l.opened <- nil
	ctx, cancel := context.WithTimeout(ctx, openPatience)
	defer cancel()
	if _, err := l.store(ctx); errors.Is(err, feed.ErrInvalid) {
		return nil, fmt.Errorf("--feed: %w", err)
	}
	return l, nil
}

// Close must not be called while a request runs.
func (l *lateFeed) Close() {
	if s := <-l.opened; s != nil {
		_ = s.Close() // it has no work of its own
	}
}

func (l *lateFeed) store(ctx context.Context) (s *feed.Store, err error) {
	select {
	case s = <-l.opened:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if s == nil {
		s, err = feed.Open(ctx, l.dsn, feed.NoMigrate())
	}
	l.opened <- s
	return s, err
}

// ask makes a request to the feed, or returns why its database is not open.
func ask[T any](ctx context.Context, l *lateFeed, request func(*feed.Store) (T, error)) (answer T, err error) {
	s, err := l.store(ctx)
	if err != nil {
		return answer, err
	}
	return request(s)
}

// change is [ask] for a request that is answered by an error alone.
func (l *lateFeed) change(ctx context.Context, request func(*feed.Store) error) error {
	_, err := ask(ctx, l, func(s *feed.Store) (struct{}, error) { return struct{}{}, request(s) })
	return err
}

func (l *lateFeed) Backlog(ctx context.Context) (feed.Backlog, error) {
	return ask(ctx, l, func(s *feed.Store) (feed.Backlog, error) { return s.Backlog(ctx) })
}

func (l *lateFeed) Partitions(ctx context.Context, q feed.Query) ([]feed.Partition, error) {
	return ask(ctx, l, func(s *feed.Store) ([]feed.Partition, error) { return s.Partitions(ctx, q) })
}

func (l *lateFeed) Partition(ctx context.Context, id string) (feed.Partition, error) {
	return ask(ctx, l, func(s *feed.Store) (feed.Partition, error) { return s.Partition(ctx, id) })
}

func (l *lateFeed) Counts(ctx context.Context, partition string) (map[int]feed.Counts, error) {
	return ask(ctx, l, func(s *feed.Store) (map[int]feed.Counts, error) { return s.Counts(ctx, partition) })
}

func (l *lateFeed) Items(ctx context.Context, q feed.Query) ([]feed.Item, error) {
	return ask(ctx, l, func(s *feed.Store) ([]feed.Item, error) { return s.Items(ctx, q) })
}

func (l *lateFeed) Item(ctx context.Context, partition, id string) (feed.Item, error) {
	return ask(ctx, l, func(s *feed.Store) (feed.Item, error) { return s.Item(ctx, partition, id) })
}

func (l *lateFeed) RetryFailed(ctx context.Context, partition string, items ...string) (int, error) {
	return ask(ctx, l, func(s *feed.Store) (int, error) { return s.RetryFailed(ctx, partition, items...) })
}

func (l *lateFeed) SkipFailed(ctx context.Context, partition string, items ...string) (int, error) {
	return ask(ctx, l, func(s *feed.Store) (int, error) { return s.SkipFailed(ctx, partition, items...) })
}

func (l *lateFeed) Seal(ctx context.Context, partition string) error {
	return l.change(ctx, func(s *feed.Store) error { return s.Seal(ctx, partition) })
}

func (l *lateFeed) ClosePartition(ctx context.Context, partition string) error {
	return l.change(ctx, func(s *feed.Store) error { return s.ClosePartition(ctx, partition) })
}

func (l *lateFeed) Reopen(ctx context.Context, partition string) error {
	return l.change(ctx, func(s *feed.Store) error { return s.Reopen(ctx, partition) })
}

func (l *lateFeed) Advance(ctx context.Context, partition string, gate int) error {
	return l.change(ctx, func(s *feed.Store) error { return s.Advance(ctx, partition, gate) })
}
