package page

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull/console/internal/alert"
	"github.com/jetpull/jetpull/console/internal/chart"
	"github.com/jetpull/jetpull/console/internal/sample"
	"github.com/jetpull/jetpull/console/internal/state"
	"github.com/jetpull/jetpull/console/internal/view"
	"github.com/jetpull/jetpull/feed"
)

// Summary is a source that the overview shows and that alerts check.
type Summary interface {
	// Overview returns the source's last answer. If ctx has ended, it does not wait for an answer.
	Overview(ctx context.Context, r Request) Digest
}

// Digest is the part of the overview for a source, and its objects with their states. A part without an ID is not shown.
type Digest struct {
	view.Part
	Judged alert.Sample
}

// Overview returns the page with a part for each source.
func Overview(all []Summary) Func {
	return func(ctx context.Context, r Request) (*view.Page, error) {
		page := &view.Page{Nav: "overview", Title: "Overview"}
		page.Parts = together(all, func(one Summary) view.Part { return one.Overview(ctx, r).Part })
		if len(all) == 0 {
			page.Parts = []view.Part{{ID: "overview", Lines: []string{"This console has no source. Start it with --nats, --relay or --feed."}}}
		}
		return page, nil
	}
}

// together builds a part of a page for each source. It waits for all sources at the same time, and leaves out parts without an ID.
func together[T any](all []T, build func(T) view.Part) []view.Part {
	parts := make([]view.Part, len(all))
	var building sync.WaitGroup
	for i, one := range all {
		building.Go(func() { parts[i] = build(one) })
	}
	building.Wait()
	return slices.DeleteFunc(parts, func(part view.Part) bool { return part.ID == "" })
}

// overview returns the last answer of a source. If there is one, fill completes the part and returns the objects.
func overview[S any](ctx context.Context, id, title, system string, latest *sample.Latest[S],
	fill func(part *view.Part, now S) []alert.Object,
) Digest {
	s := latest.Get()
	if ctx.Err() == nil {
		s = latest.Fresh(ctx)
	}
	d := Digest{view.Part{ID: id, Title: title, Source: source(system, s)}, alert.Sample{Source: sourceState(system, s), At: s.At}}
	if !s.At.IsZero() {
		d.Judged.Objects = fill(&d.Part, s.Value)
	}
	return d
}

// judge sets the sentence of an overview's part, and lists the objects that need attention, worst first.
func judge[T any](part *view.Part, path, noun string, all []T, worse func(a, b T) int, object func(T) alert.Object) (objects []alert.Object) {
	const most = 8
	list, trouble := &view.List{Path: path, Columns: view.Columns(capital(noun), "State", "Since", ">Waiting", "*Problem")}, 0
	var states []state.State
	for _, one := range slices.SortedStableFunc(slices.Values(all), worse) {
		o := object(one)
		objects, states = append(objects, o), append(states, o.State)
		if !o.State.Trouble() {
			continue
		}
		if trouble++; trouble <= most {
			list.Add(path+"-"+strconv.Itoa(len(list.Rows)), view.Linked(o.Name, o.Path), o.State.Value(), o.Since, o.Waiting, view.Prose(o.State.Sentence))
		}
	}
	sum := state.Sum(noun, states)
	part.Problem, part.ProblemTone = sum.Sentence, sum.Level.Tone()
	if trouble > 0 {
		list.Found = view.Bounded(len(list.Rows), trouble > most, "problem")
		part.List = list
	}
	return objects
}

// capital returns a noun with a capital letter, for a heading.
func capital(noun string) string { return strings.ToUpper(noun[:1]) + noun[1:] }

// leads returns a value with a link.
func leads(v view.Value, to string) view.Value {
	v.Href = to
	return v
}

// earlier returns the earlier of two times. A zero time does not count.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// Overview implements [Summary].
func (d *DeadLetters) Overview(ctx context.Context, _ Request) Digest {
	return overview(ctx, "deadletters", "Dead letters", "NATS", d.latest, func(part *view.Part, now []letterStream) (objects []alert.Object) {
		found, oldest, newest := 0, time.Time{}, time.Time{}
		for i, one := range now {
			name, st := one.Config.Name, d.letters(now[i:i+1]).Of()
			objects = append(objects, alert.Object{Kind: "dead letters", Name: name, Path: link("deadletters", "stream", name), State: st})
			if len(one.letters) == 0 {
				continue
			}
			found++
			oldest = earlier(oldest, one.letters[len(one.letters)-1].at)
			if last := one.letters[0].at; last.After(newest) {
				newest = last
			}
		}
		st := d.letters(now).Of()
		part.Problem, part.ProblemTone = st.Sentence, st.Level.Tone()
		part.Facts = []view.Fact{
			{Name: "Failures to look at", Value: leads(lettersValue(d.letters(now)), "deadletters")},
			{Name: "Streams", Value: view.Int(found)},
			{Name: "Oldest", Value: view.Ago(oldest, "No dead letter was found")},
			{Name: "Newest", Value: view.Ago(newest, "No dead letter was found")},
		}
		return objects
	})
}

// Overview implements [Summary].
func (m *Messages) Overview(ctx context.Context, _ Request) Digest {
	return overview(ctx, "streams", "Streams", "NATS", m.latest, func(part *view.Part, now []judgedStream) []alert.Object {
		return judge(part, "streams", "stream", now, worstStream, func(s judgedStream) alert.Object {
			return alert.Object{
				Kind: "stream", Name: s.Config.Name, Path: link("stream", "name", s.Config.Name), State: s.state, Since: s.since.value(),
				Waiting: whenKnown(s.known(), view.Number(s.State.Msgs)),
			}
		})
	})
}

// total is the key of the history for all objects of a source together. No object has an empty name.
const total = ""

// Overview implements [Summary].
func (c *Consumers) Overview(ctx context.Context, r Request) Digest {
	return overview(ctx, "nats", "NATS consumers", "NATS", c.latest, func(part *view.Part, now []*consumer) []alert.Object {
		var pending, ackPending uint64
		rate, oldest, trouble := 0.0, time.Time{}, 0
		for _, one := range now {
			trouble += boolInt(one.state.Trouble())
			oldest = earlier(oldest, one.oldest)
			pending, ackPending, rate = pending+one.NumPending, ackPending+uint64(one.NumAckPending), rate+one.Rate
		}
		noAge := "Every delivered message is acknowledged"
		if ackPending > 0 {
			noAge = "How old the messages are that are not acknowledged is not known now"
		}
		part.Facts = []view.Fact{
			{Name: "Consumers", Value: view.Linked(view.Int(len(now)).Text, "consumers")},
			{Name: "To look at", Value: view.Linked(view.Int(trouble).Text, "consumers?state=trouble")},
			{Name: "Pending", Value: view.Number(pending)},
			{Name: "Ack pending", Value: view.Number(ackPending)},
			{Name: "Deliveries", Value: view.Rate(rate)},
			{Name: "Oldest unacknowledged", Value: view.Ago(oldest, noAge)},
		}
		part.Charts = []chart.Chart{
			chart.Large("Pending", "messages", r.values(c.history, total, histPending)),
			chart.Large("Deliveries in a second", "", r.values(c.history, total, histRate)),
		}
		return judge(part, "consumers", "consumer", now, worstConsumer, func(one *consumer) alert.Object {
			return alert.Object{
				Kind: "consumer", Name: one.key, Path: link("consumer", "stream", one.Stream, "name", one.Name), State: one.state, Since: one.since.value(),
				Waiting: whenKnown(one.known(), view.Number(one.NumPending)),
			}
		})
	})
}

// Overview implements [Summary]. An account without sets has no part.
func (p *Partitions) Overview(ctx context.Context, _ Request) Digest {
	d := overview(ctx, "sets", "Partition sets", "NATS with its partition sets", p.latest, func(part *view.Part, now []judgedSet) []alert.Object {
		if len(now) == 0 {
			part.ID = ""
		}
		return judge(part, "sets", "set", now, worstSet, func(s judgedSet) alert.Object {
			return alert.Object{
				Kind: "partition set", Name: s.Name, Path: link("set", "name", s.Name), State: s.state, Since: s.since.value(),
				Waiting: whenKnown(s.known(), view.Number(s.pending)),
			}
		})
	})
	d.Judged.Source.Name = "NATS"
	return d
}

// Overview implements [Summary].
func (f *Feed) Overview(ctx context.Context, r Request) Digest {
	return overview(ctx, "feed", "Feed", feedName, f.latest, func(part *view.Part, b feed.Backlog) []alert.Object {
		st := state.Feed{Known: true, Failed: b.Failed, Blocked: b.BlockedPartitions, Ready: b.Ready, Oldest: b.Oldest}.Of()
		part.Problem, part.ProblemTone = st.Sentence, st.Level.Tone()
		part.Facts = []view.Fact{
			{Name: "Ready", Value: view.Int(b.Ready)},
			{Name: "Delayed", Value: view.Int(b.Delayed)},
			{Name: "Behind a gate", Value: view.Int(b.Gated)},
			{Name: "Failures to look at", Value: leads(quietZero(view.Int(b.Failed), b.Failed > 0, view.Bad), "feed?status=Failed")},
			{Name: "Blocked partitions", Value: quietZero(view.Int(b.BlockedPartitions), b.BlockedPartitions > 0, view.Bad)},
			{Name: "Oldest ready", Value: view.Duration(b.Oldest.Round(time.Second))},
		}
		values := func(i int) chart.Series { return r.values(f.history, total, i) }
		part.Charts = []chart.Chart{chart.Large("Ready items", "items", values(histReady)), chart.Large("Failed items", "items", values(histFailed))}
		if f.watcher != nil {
			slow := f.watcher.Stats().Slow
			part.Facts = append(part.Facts, view.Fact{Name: "Slow handlers here", Value: quietZero(view.Int(slow), slow > 0, view.Warn)})
			part.Charts = append(part.Charts, chart.Large("Items completed by this process in a second", "", values(histCompleted)))
		}
		return []alert.Object{{Kind: "feed", Name: feedName, Path: "feed", State: st}}
	})
}

// AccountSource reads how much the connection's account uses of its limits. An error means that there is no connection.
type AccountSource interface {
	Account(ctx context.Context) (AccountInfo, error)
}

// AccountInfo describes the server of the connection, and its account.
type AccountInfo struct {
	Server, Version, Cluster string // empty if not reported
	// Info is nil if Err is set, for example because the user may not ask.
	Info *jetstream.AccountInfo
	Err  error
}

// Account is the part of the overview about the server and the account.
type Account struct {
	source AccountSource
	latest *sample.Latest[AccountInfo]
	// before was read at asked. Only the sampler's goroutine uses them.
	before AccountInfo
	asked  time.Time
}

// refusedEvery is how often the account is read after an error. If the user may not ask, the server logs each request that it refuses.
const refusedEvery = time.Minute

// NewAccount returns the part. The sampler asks the source.
func NewAccount(s *sample.Sampler, source AccountSource) *Account {
	a := &Account{source: source}
	a.latest = sample.Add(s, a.ask)
	return a
}

func (a *Account) ask(ctx context.Context) (AccountInfo, error) {
	if a.before.Err != nil && time.Since(a.asked) < refusedEvery {
		return a.before, nil
	}
	info, err := a.source.Account(ctx)
	if err == nil {
		a.before, a.asked = info, time.Now()
	}
	return info, err
}

// uses returns the uses of each replication tier that has its own limits, or of the whole account.
func (s AccountInfo) uses() (all []state.Use) {
	if s.Info == nil {
		return nil
	}
	tiers := s.Info.Tiers
	if len(tiers) == 0 {
		tiers = map[string]jetstream.Tier{"": s.Info.Tier}
	}
	for _, name := range slices.Sorted(maps.Keys(tiers)) {
		t, of := tiers[name], ""
		if name != "" {
			of = " in " + name
		}
		all = append(all,
			state.Use{Noun: "streams" + of, Used: uint64(max(0, t.Streams)), Limit: int64(t.Limits.MaxStreams)},
			state.Use{Noun: "consumers" + of, Used: uint64(max(0, t.Consumers)), Limit: int64(t.Limits.MaxConsumers)},
			state.Use{Noun: "memory" + of, Used: t.Memory, Limit: t.Limits.MaxMemory, Bytes: true},
			state.Use{Noun: "storage" + of, Used: t.Store, Limit: t.Limits.MaxStore, Bytes: true})
	}
	return all
}

// Overview implements [Summary].
func (a *Account) Overview(ctx context.Context, _ Request) Digest {
	return overview(ctx, "account", "NATS server and account", "NATS", a.latest, func(part *view.Part, now AccountInfo) []alert.Object {
		st := state.Account{Err: now.Err, Uses: now.uses()}.Of()
		part.Problem, part.ProblemTone = st.Sentence, st.Level.Tone()
		part.Facts = []view.Fact{
			{Name: "Server", Value: view.Text(now.Server)},
			{Name: "Version", Value: view.Text(now.Version)},
			{Name: "Cluster", Value: view.Text(cmp.Or(now.Cluster, "none"))},
		}
		for _, use := range now.uses() {
			part.Facts = append(part.Facts, view.Fact{Name: capital(use.Noun), Value: use.Value()})
		}
		if info := now.Info; info != nil {
			part.Facts = append(part.Facts, view.Fact{Name: "Requests answered with an error", Value: view.Number(info.API.Errors)})
		}
		return []alert.Object{{Kind: "account", Name: "NATS account", Path: "overview", State: st}}
	})
}
