package page

import (
	"cmp"
	"context"
	"math"
	"net/url"
	"slices"
	"time"

	"github.com/jetpull/jetpull/console/internal/alert"
	"github.com/jetpull/jetpull/console/internal/chart"
	"github.com/jetpull/jetpull/console/internal/operation"
	"github.com/jetpull/jetpull/console/internal/sample"
	"github.com/jetpull/jetpull/console/internal/state"
	"github.com/jetpull/jetpull/console/internal/view"
)

// target is a receiver of the relay or a consumer of the broker.
type target struct {
	state.Receiver
	// name is unique, title is the name that pages and filters show, and path leads to its page.
	name, title, path string
	address           string    // where its messages are sent, if the list can be searched for it
	failed, window    int       // messages that were given up, which state.Receiver has only if the system lists them, and used part of the window
	oldest            time.Time // when the oldest waiting message arrived; zero if none waits
	from              time.Time // since when it is in its state, according to its system; zero if unknown
	now               state.State
	since             since
	// Fields of only one of the systems.
	receiver receiver
	jobs     jobs
}

// marked returns the object of the mark for a target's failures.
func (t target) marked(noun string) string { return t.Gone + "s of " + noun + " " + t.name }

// known reports whether the system knows the state of the target now.
func (t target) known() bool { return t.Known }

// worstTarget orders by state, worst first, then by failures, and then by waiting messages, most first.
func worstTarget(a, b target) int {
	return cmp.Or(cmp.Compare(a.now.Level, b.now.Level), cmp.Compare(b.failed, a.failed), cmp.Compare(b.Backlog, a.Backlog), cmp.Compare(a.name, b.name))
}

// targetSample contains the targets of a system.
type targetSample struct {
	all    []target
	unused []target // channels of the broker without consumers
	// failed is the number of messages that were given up, and backlog that of waiting ones. They are NaN if they are not known now.
	failed, backlog float64
	delivered, seen int // seen is the number of messages that were given up and that somebody has looked at
	oldest          time.Time
}

// targets has the receivers of the relay, or the consumers of the broker, and the common parts of their pages.
type targets struct {
	system, noun string
	rates        string // title of the chart of delivered messages
	latest       *sample.Latest[targetSample]
	all          *objects[target]
	history      *sample.History
	marks        *Marks
	failed       *failureList
	// before contains the targets of the last sample, and delivered measures all deliveries. Only the sampler's goroutine uses them.
	before    map[string]target
	delivered meter
}

// The values of a history.
const (
	histWindow = iota
	histBacklog
	histGivenUp
	histDelivered
	targetWidth
)

// start makes the sampler ask the system. The runner runs operations on many targets.
func (t *targets) start(s *sample.Sampler, runner *operation.Runner, ask func(context.Context) (targetSample, error), kind string,
	actions func(target) []view.Action, offers ...offer,
) {
	t.history = s.History(t.system, targetWidth)
	t.latest = sample.Add(s, func(ctx context.Context) (targetSample, error) {
		found, err := ask(ctx)
		if err == nil {
			t.judge(ctx, &found)
		}
		return found, err
	})
	t.all = sampled(objects[target]{
		runner: runner, noun: kind, name: func(one target) string { return one.name }, actions: actions, offers: offers, fits: fitsTarget,
	}, t.system, t.latest, func(s targetSample) []target { return s.all })
}

// System implements [operation.Source].
func (t *targets) System() string { return t.system }

// judge completes a sample with the states of its targets.
func (t *targets) judge(ctx context.Context, s *targetSample) {
	now, found := time.Now(), make(map[string]target, len(s.all))
	for i, one := range s.all {
		if one.Failed = one.failed; one.failed > 0 {
			seen, listed := t.marks.covers(ctx, one.marked(t.noun), t.failed, one.title)
			if one.Seen = seen; seen {
				s.seen += one.failed
			}
			if !listed {
				one.Failed = state.NotKnown
			}
		}
		one.now, one.since = one.Of(), since{now, t.before == nil}
		if before, ok := t.before[one.name]; ok && before.now.Word == one.now.Word {
			one.since = before.since
		}
		if !one.from.IsZero() {
			one.since = since{at: one.from}
		}
		backlog := math.NaN()
		if one.Known {
			backlog = float64(one.Backlog)
			t.history.Put(now, one.name, float64(one.window), backlog, float64(one.failed), math.NaN())
		}
		s.backlog, s.oldest = s.backlog+backlog, earlier(s.oldest, one.oldest)
		s.all[i], found[one.name] = one, one
	}
	t.before, t.delivered = found, t.delivered.plus(now, uint64(s.delivered))
	t.history.Put(now, total, math.NaN(), s.backlog, s.failed, t.delivered.rate)
}

// columns returns the columns that the lists of both systems have. The page of a target shows the values from the second on.
func (t *targets) columns(now time.Time) []column[target] {
	return append([]column[target]{
		text("State", func(one target) view.Value { return one.now.Value() }).by("state", worstTarget),
		text("Since", func(one target) view.Value { return one.since.value() }).help("Since when, or when the console first saw this state"),
	}, ifKnown(target.known,
		number("Failed", func(one target) view.Value {
			v := quietZero(view.Int(one.failed), one.failed > 0 && !one.Seen, view.Bad)
			return leads(v, link("failed", "system", t.system, "receiver", one.title))
		}).help("Messages that were given up").by("failed", func(a, b target) int { return cmp.Compare(a.failed, b.failed) }),
		count("Backlog", "backlog", func(one target) int { return one.Backlog }).help("Messages that wait"),
		text("Last hour", func(one target) view.Value {
			return view.Value{Chart: chart.Small("Backlog", t.history.Values(now, time.Hour, one.name, histBacklog, 60))}
		}).help("Backlog over the last hour"),
		number("Oldest waiting", func(one target) view.Value { return view.Ago(one.oldest, "Nothing waits") }),
		number("In flight", func(one target) view.Value { return view.Int(one.InFlight) }),
	)...)
}

// list returns the page of the list, with columns of the system around the common ones.
func (t *targets) list(r Request, s sample.Sample[targetSample], list *view.List, first, last []column[target], more ...view.Option) *view.Page {
	list.Path = t.system
	all, columns := slices.Concat(s.Value.all, s.Value.unused), slices.Concat(first, t.columns(r.Now), last)
	states := append(options("", "all", "trouble", "needs attention", "paused", "paused", "failed", "with failures"), more...)
	return t.all.page(r, capital(t.system), source(t.system, s), list, all, columns, searchField(r.Query, "q", "Name", "or a part of it"),
		choice(r.Query, "state", "State", states))
}

func fitsTarget(q url.Values, t target) bool {
	fits := map[string]bool{
		"": true, "trouble": t.now.Trouble(), "paused": t.Paused+t.Disabled != "", "failed": t.failed > 0, "unused": t.now.Word == noConsumer,
	}
	return contains(q.Get("q"), t.title, t.address) && fits[q.Get("state")]
}

const noConsumer = "no consumer"

// part returns the first part of a target's page, with the columns that only its system has.
func (t *targets) part(ctx context.Context, r Request, from view.Source, one target, more []column[target]) view.Part {
	part := view.Part{
		ID: t.noun, Source: from, Problem: one.now.Sentence, ProblemTone: one.now.Level.Tone(), Actions: t.all.actions(one), Charts: t.charts(r, one.name),
		Facts: facts(one, append(t.columns(r.Now)[1:], more...)),
	}
	if one.failed == 0 {
		return part
	}
	object := one.marked(t.noun)
	if mark := t.marks.of(object); mark.By != "" {
		part.Lines = append(part.Lines, mark.words())
	}
	if last, known := t.failed.last(ctx, one.title); known {
		part.Actions = append(part.Actions, t.marks.action(look{Object: object, Sequence: last, Timed: t.system == brokerName}, r))
	}
	return part
}

// Overview implements [Summary].
func (t *targets) Overview(ctx context.Context, r Request) Digest {
	return overview(ctx, t.system, capital(t.system), t.system, t.latest, func(part *view.Part, now targetSample) []alert.Object {
		unseen := now.failed - float64(now.seen)
		part.Facts = []view.Fact{
			{Name: capital(t.noun) + "s", Value: view.Linked(view.Int(len(now.all)).Text, t.system)},
			{Name: "Backlog", Value: whenKnown(!math.IsNaN(now.backlog), view.Int(int(now.backlog)))},
			{Name: "Oldest waiting", Value: whenKnown(!math.IsNaN(now.backlog), view.Ago(now.oldest, "Nothing waits"))},
			{Name: "Failures to look at", Value: leads(whenKnown(!math.IsNaN(unseen), quietZero(view.Int(int(unseen)), unseen > 0, view.Bad)),
				link("failed", "system", t.system))},
		}
		part.Charts = append(t.charts(r, total), chart.Large(t.rates, "", r.values(t.history, total, histDelivered)))
		return judge(part, t.system, t.noun, now.all, worstTarget, func(one target) alert.Object {
			return alert.Object{
				Kind: t.all.noun, Name: one.title, Path: one.path, State: one.now, Since: one.since.value(), Waiting: whenKnown(one.Known, view.Int(one.Backlog)),
			}
		})
	})
}

// charts returns the charts of a target, or of all.
func (t *targets) charts(r Request, name string) []chart.Chart {
	return []chart.Chart{
		chart.Large("Backlog", "messages", r.values(t.history, name, histBacklog)),
		chart.Large("Failed", "messages", r.values(t.history, name, histGivenUp)),
	}
}
