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

// Overview is the page with a part for each source. The sources are waited for at the same time.
func Overview(all []Summary) Func {
	return func(ctx context.Context, r Request) (*view.Page, error) {
		page := &view.Page{Nav: "overview", Title: "Overview", Parts: make([]view.Part, len(all))}
		var parts sync.WaitGroup
		for i, one := range all {
			parts.Go(func() { page.Parts[i] = one.Overview(ctx, r) })
		}
		parts.Wait()
		page.Parts = slices.DeleteFunc(page.Parts, func(part view.Part) bool { return part.ID == "" })
		if len(all) == 0 {
			page.Parts = []view.Part{{ID: "overview", Lines: []string{"This console has no source. Start it with --nats, --relay or --feed."}}}
		}
		return page, nil
	}
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

// Overview implements [Summary].
func (d *DeadLetters) Overview(ctx context.Context, _ Request) view.Part {
	s := d.latest.Fresh(ctx)
	part := view.Part{ID: "deadletters", Title: "Dead letters", Source: source("NATS", s)}
	if s.At.IsZero() {
		return part
	}
	oldest, newest := time.Time{}, time.Time{}
	for _, one := range s.Value.found {
		if len(one.letters) == 0 {
			continue
		}
		if first := one.letters[len(one.letters)-1].at; oldest.IsZero() || first.Before(oldest) {
			oldest = first
		}
		if last := one.letters[0].at; last.After(newest) {
			newest = last
		}
	}
	l := d.letters(s.Value)
	st := l.Of()
	part.Problem, part.ProblemTone = st.Sentence, st.Level.Tone()
	part.Facts = []view.Fact{
		{Name: "Failures to look at", Value: leads(lettersValue(l), "deadletters")},
		{Name: "Streams", Value: view.Int(len(s.Value.found))},
		{Name: "Oldest", Value: view.Ago(oldest, "No dead letter was found")},
		{Name: "Newest", Value: view.Ago(newest, "No dead letter was found")},
	}
	return part
}

// Overview implements [Summary].
func (m *Messages) Overview(ctx context.Context, _ Request) view.Part {
	s := m.latest.Fresh(ctx)
	part := view.Part{ID: "streams", Title: "Streams", Source: source("NATS", s)}
	if s.At.IsZero() {
		return part
	}
	judge(&part, "streams", "stream", s.Value, worstStream, judgedStream.object, func(one judgedStream) (since, waiting view.Value) {
		return one.since.value(), view.Number(one.State.Msgs)
	})
	return part
}

// total is the key of the history of all objects of a source together. No object has an empty name.
const total = ""

// Overview implements [Summary].
func (c *Consumers) Overview(ctx context.Context, r Request) view.Part {
	s := c.latest.Fresh(ctx)
	part := view.Part{ID: "nats", Title: "NATS consumers", Source: source("NATS", s)}
	if s.At.IsZero() {
		return part
	}
	var pending, ackPending uint64
	rate, oldest := 0.0, time.Time{}
	for _, one := range s.Value {
		if !one.oldest.IsZero() && (oldest.IsZero() || one.oldest.Before(oldest)) {
			oldest = one.oldest
		}
		pending, ackPending, rate = pending+one.NumPending, ackPending+uint64(one.NumAckPending), rate+one.Rate
	}
	noAge := "Every delivered message is acknowledged"
	if ackPending > 0 {
		noAge = "How old the messages are that are not acknowledged is not known now"
	}
	trouble := judge(&part, "consumers", "consumer", s.Value, worstConsumer, (*consumer).object, func(one *consumer) (since, waiting view.Value) {
		return one.since.value(), view.Number(one.NumPending)
	})
	part.Facts = []view.Fact{
		{Name: "Consumers", Value: view.Linked(view.Int(len(s.Value)).Text, "consumers")},
		{Name: "To look at", Value: view.Linked(view.Int(trouble).Text, "consumers?state=trouble")},
		{Name: "Pending", Value: view.Number(pending)},
		{Name: "Ack pending", Value: view.Number(ackPending)},
		{Name: "Deliveries", Value: view.Rate(rate)},
		{Name: "Oldest unacknowledged", Value: view.Ago(oldest, noAge)},
	}
	part.Charts = c.charts(r, total)
	return part
}

// Overview implements [Summary]. An account without sets has no part.
func (p *Partitions) Overview(ctx context.Context, _ Request) view.Part {
	s := p.latest.Fresh(ctx)
	part := view.Part{ID: "sets", Title: "Partition sets", Source: source("NATS with its partition sets", s)}
	switch {
	case s.At.IsZero():
		return part
	case len(s.Value) == 0:
		return view.Part{}
	}
	judge(&part, "sets", "set", s.Value, worstSet, judgedSet.object, func(one judgedSet) (since, waiting view.Value) {
		return one.since.value(), view.Number(one.pending)
	})
	return part
}

// charts are those of the overview.
func (c *Consumers) charts(r Request, key string) []chart.Chart {
	return []chart.Chart{
		chart.Large("Pending", "messages", r.values(c.history, key, histPending)),
		chart.Large("Deliveries in a second", "", r.values(c.history, key, histRate)),
	}
}

// Overview implements [Summary].
func (f *Feed) Overview(ctx context.Context, r Request) view.Part {
	s := f.latest.Fresh(ctx)
	part := view.Part{ID: "feed", Title: "Feed", Source: source(feedName, s)}
	if s.At.IsZero() {
		return part
	}
	st := feedState(s.Value)
	part.Problem, part.ProblemTone = st.Sentence, st.Level.Tone()
	b := s.Value
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
	return part
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

// Judged implements [Summary].
func (m *Messages) Judged() alert.Sample {
	s := m.latest.Get()
	return judged("NATS", s, s.Value, judgedStream.object)
}

func (s judgedStream) object() alert.Object {
	return alert.Object{Kind: "stream", Name: s.Config.Name, Path: link("stream", "name", s.Config.Name), State: s.state}
}

// Judged implements [Summary].
func (p *Partitions) Judged() alert.Sample {
	s := p.latest.Get()
	return judged("NATS", s, s.Value, judgedSet.object)
}

func (s judgedSet) object() alert.Object {
	return alert.Object{Kind: "partition set", Name: s.Name, Path: link("set", "name", s.Name), State: s.state}
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
