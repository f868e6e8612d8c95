package page

import (
	"context"
	"fmt"

	"github.com/jetpull/jetpull/console/internal/chart"
	"github.com/jetpull/jetpull/console/internal/sample"
	"github.com/jetpull/jetpull/console/internal/view"
)

// Summary is the part of the overview that a source has.
type Summary interface {
	Overview(ctx context.Context, r Request) view.Part
}

// Overview is the page with a part for each source.
func Overview(all []Summary) Func {
	return func(ctx context.Context, r Request) (*view.Page, error) {
		page := &view.Page{Nav: "overview", Title: "Overview"}
		for _, one := range all {
			page.Parts = append(page.Parts, one.Overview(ctx, r))
		}
		if len(all) == 0 {
			page.Parts = []view.Part{{ID: "overview", Lines: []string{"This console has no source. Start it with --nats, --relay or --feed."}}}
		}
		return page, nil
	}
}

// worst is the sentence of an overview for states of which total there are.
func worst(total, bad, warn int, noun string) (string, view.Tone) {
	switch {
	case total == 0:
		return "There is no " + noun + ".", view.Plain
	case bad > 0 && warn > 0:
		return fmt.Sprintf("%d of %s in trouble, %d more should be looked at.", bad, countIs(uint64(total), noun), warn), view.Bad
	case bad > 0:
		return fmt.Sprintf("%d of %s in trouble.", bad, countIs(uint64(total), noun)), view.Bad
	case warn > 0:
		return fmt.Sprintf("%d of %s should be looked at.", warn, view.Count(uint64(total), noun)), view.Warn
	}
	return "Healthy: all of " + view.Count(uint64(total), noun) + " work or are idle.", view.Good
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
	bad, warn := 0, 0
	var pending, ackPending uint64
	rate := 0.0
	list := &view.List{Path: "consumers", Columns: []view.Column{{Title: "Consumer"}, {Title: "State"}, {Title: "Since"}, {Title: "Pending", Number: true}, {Title: "Problem", Wide: true}}}
	rows := append([]*consumer(nil), s.Value...)
	order(nil, rows, consumerOrders, "state", false)
	for _, one := range rows {
		pending, ackPending, rate = pending+one.NumPending, ackPending+uint64(one.NumAckPending), rate+one.rate
		switch one.state.tone {
		case view.Bad:
			bad++
		case view.Warn:
			warn++
		default:
			continue
		}
		const most = 8
		if len(list.Rows) < most {
			list.Rows = append(list.Rows, view.Row{ID: "c-" + one.key, Cells: []view.Value{
				view.Linked(one.key, link("consumer", "stream", one.Stream, "name", one.Name)), view.Word(one.state.tone, one.state.word), sinceValue(one), view.Number(one.NumPending), view.Sentence(one.state.sentence),
			}})
		}
	}
	part.Problem, part.ProblemTone = worst(len(rows), bad, warn, "consumer")
	part.Facts = []view.Fact{
		{Name: "Consumers", Value: view.Linked(view.Int(len(rows)).Text, "consumers")},
		{Name: "To look at", Value: view.Linked(view.Int(bad+warn).Text, "consumers?state=trouble")},
		{Name: "Pending", Value: view.Number(pending)},
		{Name: "Ack pending", Value: view.Number(ackPending)},
		{Name: "Deliveries", Value: view.Rate(rate)},
	}
	part.Charts = c.charts(r, total)
	if len(list.Rows) > 0 {
		list.Found = view.Bounded(len(list.Rows), bad+warn > len(list.Rows), "problem")
		part.List = list
	}
	return part
}

// charts are those of the overview.
func (c *Consumers) charts(r Request, key string) []chart.Chart {
	return []chart.Chart{
		chart.Large("Pending", c.history.Values(r.Now, key, histPending, 360)), chart.Large("Deliveries in a second", c.history.Values(r.Now, key, histRate, 360)),
	}
}

// Overview implements [Summary].
func (y *Relay) Overview(ctx context.Context, r Request) view.Part {
	s := y.latest.Fresh(ctx)
	part := view.Part{ID: "relay", Title: "Relay", Source: source(relayName, s)}
	if s.At.IsZero() {
		return part
	}
	bad, warn, backlog := 0, 0, 0
	oldest := 0.0
	list := &view.List{Path: "relay", Columns: []view.Column{{Title: "Receiver"}, {Title: "State"}, {Title: "Backlog", Number: true}, {Title: "Problem", Wide: true}}}
	rows := append([]receiver(nil), s.Value...)
	order(nil, rows, receiverOrders, "state", false)
	for _, one := range rows {
		backlog += one.backlog()
		if one.State != nil && one.State.Backlog > 0 {
			oldest = max(oldest, one.State.Oldest)
		}
		st := one.state()
		switch st.tone {
		case view.Bad:
			bad++
		case view.Warn:
			warn++
		default:
			continue
		}
		const most = 8
		if len(list.Rows) < most {
			list.Rows = append(list.Rows, view.Row{ID: "r-" + one.Name, Cells: []view.Value{view.Linked(one.Name, link("receiver", "name", one.Name)), view.Word(st.tone, st.word), view.Int(one.backlog()), view.Sentence(st.sentence)}})
		}
	}
	part.Problem, part.ProblemTone = worst(len(rows), bad, warn, "receiver")
	part.Facts = []view.Fact{
		{Name: "Receivers", Value: view.Linked(view.Int(len(rows)).Text, "relay")},
		{Name: "Backlog", Value: view.Int(backlog)},
		{Name: "Oldest waiting", Value: view.Duration(seconds(oldest).Round(sample.Patience / 2))},
		{Name: "Failures to look at", Value: view.Linked("failed messages", "failed")},
	}
	part.Charts = []chart.Chart{chart.Large("Backlog", y.history.Values(r.Now, total, histBacklog, 360)), chart.Large("POSTs in the windows", y.history.Values(r.Now, total, histWindow, 360))}
	if len(list.Rows) > 0 {
		list.Found = view.Bounded(len(list.Rows), bad+warn > len(list.Rows), "problem")
		part.List = list
	}
	return part
}

// Overview implements [Summary].
func (f *Feed) Overview(ctx context.Context, r Request) view.Part {
	s := f.latest.Fresh(ctx)
	part := view.Part{ID: "feed", Title: "Feed", Source: source(feedName, s)}
	if s.At.IsZero() {
		return part
	}
	st := feedState(s.Value)
	part.Problem, part.ProblemTone = st.sentence, st.tone
	part.Facts = []view.Fact{
		{Name: "Ready", Value: view.Int(s.Value.Ready)},
		{Name: "Behind a gate", Value: view.Int(s.Value.Gated)},
		{Name: "Failures to look at", Value: view.Linked(view.Int(s.Value.Failed).Text, "feed?status=Failed")},
		{Name: "Oldest ready", Value: view.Duration(s.Value.Oldest.Round(sample.Patience / 2))},
	}
	part.Charts = []chart.Chart{chart.Large("Ready items", f.history.Values(r.Now, total, histReady, 360)), chart.Large("Failed items", f.history.Values(r.Now, total, histFailed, 360))}
	return part
}
