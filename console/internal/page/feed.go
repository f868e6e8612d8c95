package page

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jetpull/jetpull/console/internal/operation"
	"github.com/jetpull/jetpull/console/internal/sample"
	"github.com/jetpull/jetpull/console/internal/view"
	"github.com/jetpull/jetpull/feed"
)

// FeedSource reads and changes the partitions of a feed. A [feed.Store] implements it.
type FeedSource interface {
	Backlog(ctx context.Context) (feed.Backlog, error)
	Partitions(ctx context.Context, q feed.Query) ([]feed.Partition, error)
	Partition(ctx context.Context, id string) (feed.Partition, error)
	CountsUpTo(ctx context.Context, partition string, most int) (counts map[int]feed.Counts, more bool, err error)
	Seal(ctx context.Context, partition string) error
	ClosePartition(ctx context.Context, partition string) error
	Reopen(ctx context.Context, partition string) error
	Advance(ctx context.Context, partition string, gate int) error
	Items(ctx context.Context, q feed.Query) ([]feed.Item, error)
	Item(ctx context.Context, partition, id string) (feed.Item, error)
	RetryFailed(ctx context.Context, partition string, items ...string) (int, error)
	SkipFailed(ctx context.Context, partition string, items ...string) (int, error)
}

// FeedWatcher counts the items that a watcher of this process has completed. A [feed.Watcher] implements it.
type FeedWatcher interface{ Stats() feed.Stats }

// Feed has the pages of a feed.
type Feed struct {
	Family
	source  FeedSource  // used only after ready
	open    atomic.Bool // whether the source is set
	watcher FeedWatcher // nil if there is none in this process
	latest  *sample.Latest[feed.Backlog]
	all     *objects[feed.Partition]
	history *sample.History
}

// The values of the feed's history.
const (
	histReady = iota
	histFailed
	histCompleted
	feedWidth
)

const feedName = "feed"

// NewFeed returns the pages. The sampler asks the feed, which open opens. The runner runs operations on many partitions. watcher may be nil.
func NewFeed(s *sample.Sampler, open func(context.Context) (FeedSource, error), watcher FeedWatcher, runner *operation.Runner) *Feed {
	f := &Feed{watcher: watcher, history: s.History("feed", feedWidth)}
	f.Family = Family{"Feed", "feed", map[string]Func{"feed": f.list, "partition": f.opened(f.one), "item": f.opened(f.item)}}
	f.all = f.allPartitions(runner)
	var completed meter
	f.latest = sample.Add(s, func(ctx context.Context) (b feed.Backlog, err error) {
		if !f.open.Load() {
			if f.source, err = open(ctx); err == nil {
				f.open.Store(true)
			}
		}
		if err == nil {
			b, err = f.source.Backlog(ctx)
		}
		now := time.Now()
		if watcher != nil {
			completed = completed.plus(now, uint64(watcher.Stats().Completed))
		}
		if err == nil {
			f.history.Put(now, total, float64(b.Ready), float64(b.Failed), completed.rate)
		}
		return b, err
	})
	return f
}

// ready waits until the sampler has opened the feed.
func (f *Feed) ready(ctx context.Context) error {
	if f.open.Load() {
		return nil
	}
	if s := f.latest.Next(ctx); !f.open.Load() {
		return cmp.Or(s.Err, context.DeadlineExceeded)
	}
	return nil
}

// opened returns a page function that waits until the feed is open.
func (f *Feed) opened(build Func) Func {
	return func(ctx context.Context, r Request) (*view.Page, error) {
		if err := f.ready(ctx); err != nil {
			return nil, notShown(feedName, err, "Look at the database.", "tables")
		}
		return build(ctx, r)
	}
}

// partitionColumns returns the columns of the list. The page of a partition shows the values from the second on.
func partitionColumns(now time.Time) []column[feed.Partition] {
	return []column[feed.Partition]{
		text("Partition", func(p feed.Partition) view.Value { return view.Linked(p.ID, link("partition", "id", p.ID)) }).by("name", nil),
		text("Status", func(p feed.Partition) view.Value { return feedStatus(p.Status) }).by("status", nil),
		number("Gate", func(p feed.Partition) view.Value { return view.Value{Text: strconv.Itoa(p.Gate)} }),
		text("Sealed", func(p feed.Partition) view.Value {
			return view.Text(map[bool]string{true: "yes", false: "no"}[p.Sealed])
		}),
		text("Lease held by", lease),
		number("Lease until", func(p feed.Partition) view.Value { return until(p, now) }),
	}
}

func (f *Feed) list(ctx context.Context, r Request) (*view.Page, error) {
	q, s := r.Query, f.latest.Fresh(ctx)
	head := f.Overview(ctx, r).Part
	head.Title, head.Charts = "", nil
	err := f.ready(ctx)
	var found []feed.Partition
	if err == nil {
		found, err = f.page(ctx, q)
	}
	list := &view.List{
		Path: "feed", Query: q, Sorted: cmp.Or(q.Get("sort"), "status"), Descending: q.Has("desc") && q.Get("sort") != "name",
		Empty: inSentence("no partitions", nil),
	}
	next := func(last feed.Partition) url.Values {
		return with(with(q, "after", last.ID), "stage", string(last.Status))
	}
	shown := firstPage(list, found, "partition", func(p feed.Partition) string { return "p-" + p.ID }, next, partitionColumns(r.Now))
	filter := ordered(q, searchField(q, "q", "Partition", "its whole name"), choice(q, "status", "Status", feedStates))
	all := f.all.forAll(r, err != nil, filter, shown, list.Next != nil || q.Get("after") != "")
	for i, a := range all {
		if (a.Name == "retry-all" || a.Name == "skip-all") && !s.Stale() {
			all[i].Confirm += fmt.Sprintf(" The whole feed has %s in %s.", view.Count(uint64(s.Value.Failed), "failed item"),
				view.Count(uint64(s.Value.BlockedPartitions), "blocked partition"))
		}
	}
	part := view.Part{ID: "partitions", Title: "Partitions of the feed", Source: reading(feedName, r, err), List: list, Actions: all}
	return &view.Page{Nav: "feed", Title: "Feed", Filter: filter, Parts: []view.Part{head, part}}, nil
}

// feedStates are the states of partitions and items.
var feedStates = options("", "all", "Failed", "failed", "Available", "available", "Complete", "complete")

// page reads the partitions of a page, and one more. They are ordered by status, failed first, or by name.
func (f *Feed) page(ctx context.Context, q url.Values) (found []feed.Partition, err error) {
	query := partitionQuery(q, pageSize+1)
	query.After = q.Get("after")
	if q.Get("sort") == "name" || query.Status != "" {
		return f.source.Partitions(ctx, query)
	}
	statuses := []feed.Status{feed.Failed, feed.Available, feed.Complete}
	if q.Has("desc") {
		slices.Reverse(statuses)
	}
	for _, query.Status = range statuses[max(0, slices.Index(statuses, feed.Status(q.Get("stage")))):] {
		query.Limit = pageSize + 1 - len(found)
		more, err := f.source.Partitions(ctx, query)
		if found = append(found, more...); err != nil || len(found) > pageSize {
			return found, err
		}
		query.After = ""
	}
	return found, nil
}

func feedStatus(s feed.Status) view.Value {
	return view.Word(map[feed.Status]view.Tone{feed.Failed: view.Bad, feed.Complete: view.Good}[s], string(s))
}

func lease(p feed.Partition) view.Value {
	if p.Owner == "" {
		return view.None("Nobody holds the lease")
	}
	return view.Code(p.Owner)
}

func until(p feed.Partition, now time.Time) view.Value {
	v := view.Ago(p.Until, "not stated")
	switch {
	case p.Owner == "":
		return view.None("Nobody holds the lease")
	case p.Until.Before(now):
		v.Tone, v.Prefix = view.Warn, "ended "
	}
	return v
}

// partitionsPage is the number of partitions to read at once.
const partitionsPage = 500

// allPartitions returns the actions for all partitions that match the filter.
func (f *Feed) allPartitions(runner *operation.Runner) *objects[feed.Partition] {
	return (&objects[feed.Partition]{
		runner: runner, noun: "partition", matching: f.matching, name: func(p feed.Partition) string { return p.ID },
		find: func(ctx context.Context, id string) (feed.Partition, error) { return f.source.Partition(ctx, id) },
		actions: func(p feed.Partition) []view.Action {
			return f.actions(p, boolInt(p.Status == feed.Failed)) // the number of failed items is unknown, and no operation needs it
		},
		offers: []offer{
			{name: "retry", label: "Requeue the failed items of", confirm: "Attempts are counted from zero again."},
			{
				name: "skip", label: "Skip the failed items of", danger: true,
				confirm: "They count as complete though their work is not done, so that the gates open. This cannot be undone.",
			},
			{name: "reopen", label: "Reopen", confirm: "They take items again."},
			{name: "seal", label: "Seal", confirm: "No more items can be added, until they are reopened."},
			{
				name: "advance", label: "Advance", danger: true,
				fields:  []view.Field{{Name: "gate", Label: "To gate (empty: each to its next one)", Type: "number"}},
				confirm: "A partition refuses while an item below the gate is not complete. This cannot be undone.",
				check: func(form url.Values) error {
					_, err := parseGate(cmp.Or(form.Get("gate"), "0"))
					return err
				},
			},
			{name: "close", label: "Close", confirm: "A partition refuses while an item is not complete."},
		},
	}).add()
}

// matching reads the partitions that match the query of the list, for an action.
func (f *Feed) matching(ctx context.Context, q url.Values, action string, most int) (all []feed.Partition, more bool, err error) {
	query := partitionQuery(q, partitionsPage)
	if (action == "retry" || action == "skip") && query.Status == "" {
		query.Status = feed.Failed // only these are held by failures, and there are few of them
	}
	for ; ; query.After = all[len(all)-1].ID {
		found, err := f.source.Partitions(ctx, query)
		all = append(all, found...)
		switch {
		case err != nil || len(found) < partitionsPage:
			return all, false, err
		case most > 0 && len(all) >= most:
			return all[:most], true, nil
		}
	}
}

// partitionQuery returns the query of the list.
func partitionQuery(q url.Values, limit int) feed.Query {
	return feed.Query{Partition: strings.TrimSpace(q.Get("q")), Status: feed.Status(q.Get("status")), Limit: limit}
}
