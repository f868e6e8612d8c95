package page

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jetpull/jetpull/console/internal/alert"
	"github.com/jetpull/jetpull/console/internal/chart"
	"github.com/jetpull/jetpull/console/internal/sample"
	"github.com/jetpull/jetpull/console/internal/state"
	"github.com/jetpull/jetpull/console/internal/view"
	"github.com/jetpull/jetpull/feed"
)

// Summary is the part of the overview that a source has. A part without an ID is not shown.
type Summary interface {
	Overview(ctx context.Context, r Request) view.Part
	// Judged is what the source has answered last. It does not wait.
	Judged() alert.Sample
}

// Overview is the page with a part for each source.
func Overview(all []Summary) Func {
	return func(ctx context.Context, r Request) (*view.Page, error) {
		page := &view.Page{Nav: "overview", Title: "Overview"}
		page.Parts = together(all, func(one Summary) view.Part { return one.Overview(ctx, r) })
		if len(all) == 0 {
			page.Parts = []view.Part{{ID: "overview", Lines: []string{"This console has no source. Start it with --nats, --relay or --feed."}}}
		}
		return page, nil
	}
}

// together builds a part of a page for each source, and waits for all sources at the same time. A part without an ID is left out.
func together[T any](all []T, build func(T) view.Part) []view.Part {
	parts := make([]view.Part, len(all))
	var building sync.WaitGroup
	for i, one := range all {
		building.Go(func() { parts[i] = build(one) })
	}
	building.Wait()
	return slices.DeleteFunc(parts, func(part view.Part) bool { return part.ID == "" })
}

// overview is the part of a source on the overview. Fill completes it once the source has answered.
func overview[S any](ctx context.Context, id, title, system string, latest *sample.Latest[S], fill func(part *view.Part, now S)) view.Part {
	s := latest.Fresh(ctx)
	part := view.Part{ID: id, Title: title, Source: source(system, s)}
	if !s.At.IsZero() {
		fill(&part, s.Value)
	}
	return part
}

// judge sets the sentence of an overview's part, and lists the objects that need attention, the worst first. It returns how many these are.
func judge[T any](part *view.Part, path, noun string, all []T, worse func(a, b T) int, object func(T) alert.Object,
	show func(T) (since, waiting view.Value),
) (trouble int) {
	const most = 8
	list := &view.List{Path: path, Columns: view.Texts(capital(noun), "State", "Since").Numbers("Waiting").Wide("Problem")}
	states := make([]state.State, 0, len(all))
	for _, one := range slices.SortedStableFunc(slices.Values(all), worse) {
		o := object(one)
		states = append(states, o.State)
		if !o.State.Trouble() {
			continue
		}
		if trouble++; trouble <= most {
			since, waiting := show(one)
			list.Add(path+"-"+strconv.Itoa(len(list.Rows)), view.Linked(o.Name, o.Path), o.State.Value(), since, waiting, view.Prose(o.State.Sentence))
		}
	}
	sum := state.Sum(noun, states)
	part.Problem, part.ProblemTone = sum.Sentence, sum.Level.Tone()
	if trouble > 0 {
		list.Found = view.Bounded(len(list.Rows), trouble > most, "problem")
		part.List = list
	}
	return trouble
}

// capital begins a heading.
func capital(noun string) string { return strings.ToUpper(noun[:1]) + noun[1:] }

// leads makes a value a link.
func leads(v view.Value, to string) view.Value {
	v.Href = to
	return v
}

// earlier is the first of two times, of which a zero one is none.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// Overview implements [Summary].
func (d *DeadLetters) Overview(ctx context.Context, _ Request) view.Part {
	return overview(ctx, "deadletters", "Dead letters", "NATS", d.latest, func(part *view.Part, now letterStreams) {
		oldest, newest := time.Time{}, time.Time{}
		for _, one := range now.found {
			if n := len(one.letters); n > 0 {
				oldest = earlier(oldest, one.letters[n-1].at)
				if last := one.letters[0].at; last.After(newest) {
					newest = last
				}
			}
		}
		st := d.letters(now).Of()
		part.Problem, part.ProblemTone = st.Sentence, st.Level.Tone()
		part.Facts = []view.Fact{
			{Name: "Failures to look at", Value: leads(lettersValue(d.letters(now)), "deadletters")},
			{Name: "Streams", Value: view.Int(len(now.found))},
			{Name: "Oldest", Value: view.Ago(oldest, "No dead letter was found")},
			{Name: "Newest", Value: view.Ago(newest, "No dead letter was found")},
		}
	})
}

// Overview implements [Summary].
func (m *Messages) Overview(ctx context.Context, _ Request) view.Part {
	return overview(ctx, "streams", "Streams", "NATS", m.latest, func(part *view.Part, now []judgedStream) {
		judge(part, "streams", "stream", now, worstStream, judgedStream.object, judgedStream.shown)
	})
}

// total is the key of the history of all objects of a source together. No object has an empty name.
const total = ""

// Overview implements [Summary].
func (c *Consumers) Overview(ctx context.Context, r Request) view.Part {
	return overview(ctx, "nats", "NATS consumers", "NATS", c.latest, func(part *view.Part, now []*consumer) {
		var pending, ackPending uint64
		rate, oldest := 0.0, time.Time{}
		for _, one := range now {
			oldest = earlier(oldest, one.oldest)
			pending, ackPending, rate = pending+one.NumPending, ackPending+uint64(one.NumAckPending), rate+one.Rate
		}
		noAge := "Every delivered message is acknowledged"
		if ackPending > 0 {
			noAge = "How old the messages are that are not acknowledged is not known now"
		}
		trouble := judge(part, "consumers", "consumer", now, worstConsumer, (*consumer).object, (*consumer).shown)
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
	})
}

// Overview implements [Summary]. An account without sets has no part.
func (p *Partitions) Overview(ctx context.Context, _ Request) view.Part {
	return overview(ctx, "sets", "Partition sets", "NATS with its partition sets", p.latest, func(part *view.Part, now setSample) {
		if len(now.all) == 0 {
			*part = view.Part{}
			return
		}
		part.Source.Asked = now.at
		judge(part, "sets", "set", now.all, worstSet, judgedSet.object, judgedSet.shown)
	})
}

// Overview implements [Summary].
func (f *Feed) Overview(ctx context.Context, r Request) view.Part {
	return overview(ctx, "feed", "Feed", feedName, f.latest, func(part *view.Part, b feed.Backlog) {
		st := feedState(b)
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
	})
}

// judged is what a source answered last, with the states of its objects.
func judged[S, T any](name string, s sample.Sample[S], all []T, object func(T) alert.Object) alert.Sample {
	out := alert.Sample{Source: sourceState(name, s), At: s.At}
	for _, one := range all {
		out.Objects = append(out.Objects, object(one))
	}
	return out
}

// Judged implements [Summary].
func (c *Consumers) Judged() alert.Sample {
	s := c.latest.Get()
	return judged("NATS", s, s.Value, (*consumer).object)
}

func (c *consumer) object() alert.Object {
	return alert.Object{Kind: "consumer", Name: c.key, Path: link("consumer", "stream", c.Stream, "name", c.Name), State: c.state}
}

func (c *consumer) shown() (since, waiting view.Value) {
	return c.since.value(), view.Number(c.NumPending)
}

// Judged implements [Summary].
func (m *Messages) Judged() alert.Sample {
	s := m.latest.Get()
	return judged("NATS", s, s.Value, judgedStream.object)
}

func (s judgedStream) object() alert.Object {
	return alert.Object{Kind: "stream", Name: s.Config.Name, Path: link("stream", "name", s.Config.Name), State: s.state}
}

func (s judgedStream) shown() (since, waiting view.Value) {
	return s.since.value(), view.Number(s.State.Msgs)
}

// Judged implements [Summary]. Sets are read less often than the source is asked.
func (p *Partitions) Judged() alert.Sample {
	s := p.latest.Get()
	out := judged("NATS", s, s.Value.all, judgedSet.object)
	out.At = s.Value.at
	return out
}

func (s judgedSet) object() alert.Object {
	return alert.Object{Kind: "partition set", Name: s.Name, Path: link("set", "name", s.Name), State: s.state}
}

func (s judgedSet) shown() (since, waiting view.Value) {
	return s.since.value(), view.Number(s.pending)
}

// Judged implements [Summary]. The dead letters of a stream are an object.
func (d *DeadLetters) Judged() alert.Sample {
	s := d.latest.Get()
	object := func(name string, l state.Letters) alert.Object {
		return alert.Object{Kind: "dead letters", Name: name, Path: link("deadletters", "stream", name), State: l.Of()}
	}
	out := judged("NATS", s, s.Value.found, func(one letterStream) alert.Object {
		return object(one.Config.Name, d.letters(letterStreams{found: []letterStream{one}}))
	})
	for name, l := range s.Value.others {
		out.Objects = append(out.Objects, object(name, l))
	}
	return out
}

// Judged implements [Summary]. A feed is one object.
func (f *Feed) Judged() alert.Sample {
	s := f.latest.Get()
	return judged(feedName, s, []feed.Backlog{s.Value}, func(b feed.Backlog) alert.Object {
		return alert.Object{Kind: "feed", Name: feedName, Path: "feed", State: feedState(b)}
	})
}
