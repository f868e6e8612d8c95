package page

import (
	"context"
	"net/url"
	"strconv"
	"time"

	"github.com/jetpull/jetpull/console/internal/view"
	"github.com/jetpull/jetpull/feed"
)

// FeedSource reads and changes the partitions of a feed. A [feed.Store] is one.
type FeedSource interface {
	FeedItems
	Backlog(ctx context.Context) (feed.Backlog, error)
	Partitions(ctx context.Context, q feed.Query) ([]feed.Partition, error)
	Partition(ctx context.Context, id string) (feed.Partition, error)
	CountsUpTo(ctx context.Context, partition string, most int) (counts map[int]feed.Counts, more bool, err error)
	Seal(ctx context.Context, partition string) error
	ClosePartition(ctx context.Context, partition string) error
	Reopen(ctx context.Context, partition string) error
	Advance(ctx context.Context, partition string, gate int) error
}

// FeedItems reads and changes the items of a feed.
type FeedItems interface {
	Items(ctx context.Context, q feed.Query) ([]feed.Item, error)
	Item(ctx context.Context, partition, id string) (feed.Item, error)
	RetryFailed(ctx context.Context, partition string, items ...string) (int, error)
	SkipFailed(ctx context.Context, partition string, items ...string) (int, error)
	Running(ctx context.Context) ([]feed.Running, error)
	Cancel(ctx context.Context, partition, item string) (within time.Duration, err error)
	Delete(ctx context.Context, partition string, items ...string) error
}

// running are the attempts that watchers report.
func (f *Feed) running(ctx context.Context, r Request) view.Part {
	all, err := f.source.Running(ctx)
	part := view.Part{ID: "running", Title: "Running items", Source: reading(feedName, r, err)}
	if err != nil {
		return part
	}
	part.List = &view.List{
		Found: view.Bounded(min(len(all), pageSize), len(all) > pageSize, "item"), Path: "feed", Query: r.Query,
		Empty: "No watcher reports an item. A watcher reports what runs three times in the length of its lease.",
		Columns: []view.Column{
			{Title: "Item"},
			{Title: "Partition"},
			{Title: "Gate", Number: true},
			{Title: "Attempt", Number: true},
			{Title: "Since", Help: "When the attempt began"},
			{Title: "Host"},
			{Title: "Process", Number: true},
		},
	}
	for i, one := range all[:min(len(all), pageSize)] {
		part.List.Add("r-"+strconv.Itoa(i)+"-"+one.Item,
			view.Linked(one.Item, link("item", "partition", one.Partition, "id", one.Item)),
			view.Linked(one.Partition, link("partition", "id", one.Partition)),
			view.Value{Text: strconv.Itoa(one.Gate)},
			view.Int(one.Attempt),
			view.Ago(one.Since, "not stated"), view.Text(one.Host), view.Int(one.PID))
	}
	return part
}

// waiting are the actions on an item that is Available.
func (f *Feed) waiting(partition, id string) []view.Action {
	target := partition + "/" + id
	return []view.Action{
		{
			Name: "cancel", Label: "Cancel the attempt", Target: target, Danger: true,
			Confirm: "Cancel the attempt that a watcher makes at this item, if it is on the list of running items. The attempt then counts as failed, and " +
				"the item is retried.",
			Do: act(feedRefused(partition), func(ctx context.Context, _ url.Values) (view.Outcome, error) {
				within, err := f.source.Cancel(ctx, partition, id)
				return done("The watcher ends the attempt within " + view.Span(within) + "."), err
			}),
		},
		{
			Name: "delete", Label: "Delete", Target: target, Danger: true,
			Confirm: "Delete this item. Nobody processes it any more. An item that a watcher may have read is not deleted. This cannot be undone.",
			Do: act(feedRefused(partition), func(ctx context.Context, _ url.Values) (view.Outcome, error) {
				return view.Outcome{Count: 1, Text: "The item is deleted.", Then: link("partition", "id", partition)},
					f.source.Delete(ctx, partition, id)
			}),
		},
	}
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
