package page

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/console/internal/operation"
	"github.com/jetpull/jetpull/console/internal/sample"
	"github.com/jetpull/jetpull/console/internal/view"
	"github.com/jetpull/jetpull/internal/requeue"
)

// DeadLetters are the pages of the messages that Consume has given up. They are messages of a stream, with headers that state
// where they come from and why.
type DeadLetters struct {
	source MessageSource
	latest *sample.Latest[letterStreams]
	runner *operation.Runner
	// consumers are those that get a message again.
	consumers *Consumers
	marks     *Marks
	// known are all streams, by name. Only the sampler's goroutine uses it.
	known map[string]letterStream

	mu       sync.Mutex
	searched map[string]letterPage // the last searches, by filter and begin
}

// NewDeadLetters makes the pages. The sampler looks for streams with dead letters, and the runner runs operations on many of them.
func NewDeadLetters(s *sample.Sampler, source MessageSource, runner *operation.Runner, consumers *Consumers,
	marks *Marks,
) *DeadLetters {
	d := &DeadLetters{source: source, runner: runner, consumers: consumers, marks: marks, searched: map[string]letterPage{}}
	d.addKinds()
	d.latest = sample.Add(s, d.ask)
	return d
}

// Pages are the functions of the pages by their paths.
func (d *DeadLetters) Pages() map[string]Func {
	return map[string]Func{"deadletters": d.list, "deadletter": d.one}
}

func isDeadLetter(m *jetstream.RawStreamMsg) bool {
	return m.Header.Get(jetpull.HeaderDeadSubject) != ""
}

// letterFilter selects dead letters. It is the query of the list, and the selection of an operation.
type letterFilter struct {
	Stream   string
	Origin   string    `json:",omitempty"`
	Consumer string    `json:",omitempty"`
	Reason   string    `json:",omitempty"`
	Since    time.Time `json:",omitzero"`
	Until    time.Time `json:",omitzero"`
	// Last is the last sequence that an operation is for, and Subject where it publishes to; empty: the subject that the message had.
	Last    uint64 `json:",omitempty"`
	Subject string `json:",omitempty"`
	// Own publishes to a subject that only the consumer gets that gave the message up.
	Own bool `json:",omitempty"`
}

func parseLetterFilter(q url.Values) (f letterFilter, err error) {
	f = letterFilter{Stream: q.Get("stream"), Origin: q.Get("origin"), Consumer: q.Get("consumer"), Reason: strings.TrimSpace(q.Get("reason"))}
	f.Since, f.Until, err = times(q)
	return f, err
}

func (f *letterFilter) fits(m *jetstream.RawStreamMsg) bool {
	h := m.Header
	return isDeadLetter(m) && contains(f.Origin, h.Get(jetpull.HeaderDeadStream)) && contains(f.Consumer, h.Get(jetpull.HeaderDeadConsumer)) &&
		contains(f.Reason, h.Get(jetpull.HeaderDeadReason)) && (f.Since.IsZero() || !m.Time.Before(f.Since)) && (f.Until.IsZero() || m.Time.Before(f.Until))
}

// to is the selection of an operation with the target of its form.
func (f letterFilter) to(form url.Values) letterFilter {
	f.Subject, f.Own = strings.TrimSpace(form.Get("subject")), form.Get("only") == "own"
	return f
}

// words describe the filter in the list of operations.
func (f *letterFilter) words() string {
	text := "dead letters of " + f.Stream
	for _, part := range [][2]string{
		{" from stream ", f.Origin}, {" of consumer ", f.Consumer}, {" with reason ", f.Reason}, {" since ", stamp(f.Since)}, {" until ", stamp(f.Until)},
	} {
		if part[1] != "" {
			text += part[0] + part[1]
		}
	}
	return text
}

// letterPage is what a search has found. An open page searches again only when the stream has changed.
type letterPage struct {
	state string
	found []brief
	next  uint64
}

// remembered is a search with a memory of the last ones.
func (d *DeadLetters) remembered(ctx context.Context, info *jetstream.StreamInfo, f *letterFilter, from uint64) ([]brief, uint64, error) {
	key := fmt.Sprintf("%+v %d", *f, from)
	state := fmt.Sprintf("%d %d %d", info.State.FirstSeq, info.State.LastSeq, info.State.Msgs)
	d.mu.Lock()
	last := d.searched[key]
	d.mu.Unlock()
	if last.state == state {
		return last.found, last.next, nil
	}
	look := search{source: d.source, info: info, most: maxScanned, atOnce: letterWindow}
	found, next, _, err := look.find(ctx, from, pageSize, f.fits)
	if err != nil {
		return found, next, err
	}
	const most = 100
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.searched) >= most {
		clear(d.searched)
	}
	d.searched[key] = letterPage{state, found, next}
	return found, next, nil
}

const lettersEmpty = "This list shows messages that a consumer gave up. Consume stores them where the option DeadLetter, or `jetpull consume " +
	"--dead-letter`, names a subject of a stream."

func (d *DeadLetters) list(ctx context.Context, r Request) (*view.Page, error) {
	s := d.latest.Fresh(ctx)
	q := r.Query
	f, err := parseLetterFilter(q)
	if err != nil {
		return nil, err
	}
	options := []view.Option{}
	for _, one := range s.Value.found {
		options = append(options, view.Option{
			Value: one.Config.Name, Text: fmt.Sprintf("%s (%s)", one.Config.Name, view.Bounded(len(one.letters), one.next > 0, "dead letter")),
		})
	}
	page := &view.Page{Nav: "deadletters", Title: "Dead letters"}
	part := view.Part{ID: "deadletters", Source: source("NATS", s)}
	if f.Stream == "" && len(s.Value.found) > 0 {
		f.Stream = s.Value.found[0].Config.Name
	}
	if f.Stream == "" {
		st := d.letters(s.Value).Of()
		part.Problem, part.ProblemTone = st.Sentence, st.Level.Tone()
		part.List = &view.List{Found: view.Bounded(0, false, "dead letter"), Empty: lettersEmpty}
		page.Parts = []view.Part{part}
		return page, nil
	}
	i := slices.IndexFunc(s.Value.found, func(one letterStream) bool { return one.Config.Name == f.Stream })
	if i < 0 {
		options = append(options, view.Option{Value: f.Stream, Text: f.Stream})
	}
	info, err := d.source.Stream(ctx, f.Stream)
	if err != nil {
		return nil, streamError(f.Stream, err)
	}
	from, err := parseSequence(q.Get("before"))
	if err != nil {
		return nil, err
	}
	if from == 0 || from > info.State.LastSeq {
		from = info.State.LastSeq
	}
	found, next, err := d.remembered(ctx, info, &f, from)
	if err != nil {
		part.Problem, part.ProblemTone = "The list ends early, since the server did not answer in time: "+err.Error(), view.Warn
	}
	total := "in stream " + f.Stream
	if i >= 0 {
		one := s.Value.found[i]
		st := d.letters(letterStreams{found: s.Value.found[i : i+1]}).Of()
		part.Problem, part.ProblemTone = cmp.Or(part.Problem, st.Sentence), cmp.Or(part.ProblemTone, st.Level.Tone())
		total = view.Bounded(len(one.letters), one.next > 0, "dead letter") + " " + total
	}
	part.List = d.rows(q, &f, total, found, next)
	if from < info.State.LastSeq {
		part.List.Previous = with(q, "before", "")
	}
	if one := d.mark(info); one.By != "" {
		part.Lines = append(part.Lines, one.words())
	}
	if len(found) > 0 {
		part.Actions = d.allActions(r, info, f)
		if f == (letterFilter{Stream: f.Stream}) {
			part.Actions, part.Lines = part.Actions[:1], append(part.Lines, "To purge many, set a filter first.")
			present := look{Object: "dead letters of " + f.Stream, Sequence: info.State.LastSeq, Created: info.Created}
			part.Actions = append(part.Actions, d.marks.action(present, r))
		}
	}
	if f == (letterFilter{Stream: f.Stream}) && i >= 0 {
		part.Facts = s.Value.found[i].reasons()
	}
	page.Filter = &view.Filter{Path: "deadletters", Fields: append([]view.Field{
		{Name: "stream", Label: "Stored in", Value: f.Stream, Options: options},
		searchField(q, "reason", "Reason", "part of the error"),
		entry(q, "origin", "From stream", ""),
		entry(q, "consumer", "Consumer", ""),
	}, timeFields(q, "Since", "Until")...)}
	page.Parts = []view.Part{part}
	return page, nil
}

// reasons are those that several of the dead letters have.
func (s letterStream) reasons() []view.Fact {
	counts := map[string]int{}
	for _, one := range s.letters {
		counts[one.reason]++
	}
	return grouped(counts, 2, s.next > 0, func(reason string) view.Fact {
		return view.Fact{Name: view.Text(reason).Text, Value: view.Value{Href: link("deadletters", "stream", s.Config.Name, "reason", reason)}}
	})
}

func (d *DeadLetters) rows(q url.Values, f *letterFilter, total string, found []brief, next uint64) *view.List {
	list := &view.List{
		Path: "deadletters", Query: q, Found: fmt.Sprintf("%s shown, newest first; %s", view.Bounded(len(found), false, "dead letter"), total),
		Empty: "No dead letter matches this filter.",
	}
	if next > 0 {
		list.Next = with(q, "before", strconv.FormatUint(next, 10))
		if len(found) < pageSize {
			list.Empty = fmt.Sprintf("No dead letter among the %s that were searched matches this filter. Next searches on.",
				view.Count(maxScanned, "message"))
		}
	}
	show(list, letterColumns(f.Stream), found, func(m brief) string { return "d-" + strconv.FormatUint(m.Sequence, 10) })
	return list
}

// letterColumns are those of the list. The page of a dead letter has the values from the second on.
func letterColumns(stream string) []column[brief] {
	return []column[brief]{
		number("Given up", func(m brief) view.Value { return leads(view.Ago(m.Time, ""), letterLink(stream, m.Sequence)) }),
		text("From", func(m brief) view.Value {
			origin, seq := m.Header.Get(jetpull.HeaderDeadStream), m.Header.Get(jetpull.HeaderDeadSequence)
			return view.Linked(origin+" "+seq, link("message", "stream", origin, "seq", seq))
		}),
		text("Consumer", func(m brief) view.Value {
			consumer := m.Header.Get(jetpull.HeaderDeadConsumer)
			return view.Linked(consumer, link("consumer", "stream", m.Header.Get(jetpull.HeaderDeadStream), "name", consumer))
		}),
		text("Subject", func(m brief) view.Value { return view.Text(m.Header.Get(jetpull.HeaderDeadSubject)) }),
		number("Attempts", func(m brief) view.Value {
			attempts, _ := strconv.ParseUint(m.Header.Get(jetpull.HeaderDeadAttempts), 10, 64) // 0: it is not stated
			return view.Number(attempts)
		}),
		text("Reason", func(m brief) view.Value { return view.Sentence(m.Header.Get(jetpull.HeaderDeadReason)) }).wide(),
	}
}

func letterLink(stream string, seq uint64) string {
	return link("deadletter", "stream", stream, "seq", strconv.FormatUint(seq, 10))
}

// allActions are for all dead letters that a filter matches.
func (d *DeadLetters) allActions(r Request, info *jetstream.StreamInfo, f letterFilter) []view.Action {
	f.Last = info.State.LastSeq
	count := func(ctx context.Context, see func(context.Context, *jetstream.RawStreamMsg) error) string {
		n, more, err := d.count(ctx, f, see)
		if err != nil {
			return "How many these are is not known, since the server did not answer in time: " + err.Error()
		}
		return "That is " + view.Bounded(n, more, "dead letter") + " at this moment. Nothing has been changed yet."
	}
	subjects := func(ctx context.Context, form url.Values) string {
		f := f.to(form)
		rule, tally := d.rule(), requeue.Tally{}
		all, known := d.consumers.audience(ctx)
		reached := map[string]*consumer{}
		text := count(ctx, func(ctx context.Context, m *jetstream.RawStreamMsg) error {
			published, err := d.again(ctx, rule, f, m)
			if _, refused := errors.AsType[requeue.Refusal](err); err != nil && !refused {
				return err
			}
			subject := cmp.Or(f.Subject, m.Header.Get(jetpull.HeaderDeadSubject))
			if err == nil {
				subject = published.Subject
				for _, one := range who(all, m.Header.Get(jetpull.HeaderDeadStream), subject) {
					reached[one.key] = one
				}
			}
			tally.Add(subject, err)
			return nil
		})
		text += " Published to: " + tally.String() + ". "
		if f.Subject != "" {
			return text + "The consumers of that subject get them."
		}
		return text + names(slices.SortedFunc(maps.Values(reached), byKey), known)
	}
	begin := func(kind string) func(context.Context, url.Values) (view.Outcome, error) {
		return func(ctx context.Context, form url.Values) (view.Outcome, error) {
			rate, err := parseRate(form.Get("rate"))
			if err != nil {
				return view.Outcome{}, err
			}
			f := f.to(form)
			return begun(d.runner.Begin(ctx, kind, r.User, f.words(), f, rate))
		}
	}
	return []view.Action{
		{
			Name: "requeue-all", Label: "Requeue all that match", Target: f.words(), Preview: subjects, Do: begin(kindRequeue),
			Confirm: "Requeue all " + f.words() + ": each is published to the subject that it had, and then deleted here. " +
				"What the stream of its origin does not take stays here. The operation runs in the background, and can be cancelled.",
			Fields: []view.Field{onlyField, otherSubject, rateField("no limit")},
		},
		{
			Name: "purge-all", Label: "Purge all that match", Target: f.words(), Do: begin(kindPurge), Danger: true, Word: "purge",
			Preview: func(ctx context.Context, _ url.Values) string {
				return count(ctx, func(context.Context, *jetstream.RawStreamMsg) error { return nil })
			},
			Confirm: "Delete all " + f.words() + ". This cannot be undone. The operation runs in the background, and what it has not deleted yet stays if " +
				"it is cancelled.",
			Fields: []view.Field{rateField("no limit")},
		},
	}
}

var otherSubject = view.Field{Name: "subject", Label: "To another subject (empty: the one that it had)"}
