package page

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/console/internal/operation"
	"github.com/jetpull/jetpull/console/internal/sample"
	"github.com/jetpull/jetpull/console/internal/view"
	"github.com/jetpull/jetpull/internal/requeue"
)

// DeadLetters has the pages of the messages that Consume has given up. They are messages of a stream, with headers that describe their origin and why
// they were given up.
type DeadLetters struct {
	Family
	source MessageSource
	latest *sample.Latest[[]letterStream]
	runner *operation.Runner
	// consumers may get a message again.
	consumers *Consumers
	marks     *Marks
	// known contains all streams, by name. Only the sampler's goroutine uses it.
	known map[string]letterStream
}

// NewDeadLetters returns the pages. The sampler searches for streams with dead letters. The runner runs operations on many of them.
func NewDeadLetters(s *sample.Sampler, source MessageSource, runner *operation.Runner, consumers *Consumers, marks *Marks) *DeadLetters {
	d := &DeadLetters{source: source, runner: runner, consumers: consumers, marks: marks}
	d.addKind("requeue"+matching, func(ctx context.Context, rule *requeue.Rule, f letterFilter, m *jetstream.RawStreamMsg) error {
		_, err := d.publishAgain(ctx, rule, f, m)
		return err
	})
	d.addKind("purge"+matching, func(ctx context.Context, _ *requeue.Rule, f letterFilter, m *jetstream.RawStreamMsg) error {
		return d.source.DeleteMessage(ctx, f.Stream, m.Sequence)
	})
	d.Family = Family{"Dead letters", "deadletters", map[string]Func{"deadletters": d.list}}
	d.latest = sample.Add(s, d.ask)
	return d
}

func isDeadLetter(m *jetstream.RawStreamMsg) bool {
	return m.Header.Get(jetpull.HeaderDeadSubject) != ""
}

// matching is the suffix of the kinds of operations. Versions that cannot read each other's selections must have different suffixes.
const matching = " matching dead letters"

// letterFilter selects dead letters of a stream. It is the selection of an operation.
type letterFilter struct {
	Stream string
	Filter map[string]string `json:",omitempty"` // the fields of the list that are set
	// Created is when the stream was created, Last the last sequence to which an operation applies, and Subject the subject to publish to. An empty
	// Subject means that of the message.
	Created time.Time
	Last    uint64 `json:",omitempty"`
	Subject string `json:",omitempty"`
	// Own publishes to a subject that only the consumer that gave the message up gets.
	Own bool `json:",omitempty"`
}

// fits returns a function that reports whether the filter matches a message.
func (f letterFilter) fits() func(*jetstream.RawStreamMsg) bool {
	since, _ := parseTime(f.Filter["since"]) // there is none, or parameters has formatted it
	until, _ := parseTime(f.Filter["until"])
	return func(m *jetstream.RawStreamMsg) bool {
		h := m.Header
		return isDeadLetter(m) && contains(f.Filter["origin"], h.Get(jetpull.HeaderDeadStream)) &&
			contains(f.Filter["consumer"], h.Get(jetpull.HeaderDeadConsumer)) && contains(f.Filter["reason"], h.Get(jetpull.HeaderDeadReason)) &&
			!m.Time.Before(since) && (until.IsZero() || m.Time.Before(until))
	}
}

// to returns the selection of an operation, with the target from its form.
func (f letterFilter) to(form url.Values) letterFilter {
	f.Subject, f.Own = strings.TrimSpace(form.Get("subject")), form.Get("only") == "own"
	return f
}

func (d *DeadLetters) list(ctx context.Context, r Request) (*view.Page, error) {
	s, q := d.latest.Fresh(ctx), r.Query
	filter, err := parameters(q, "origin", "consumer", "reason")
	if err != nil {
		return nil, err
	}
	f := letterFilter{Stream: q.Get("stream"), Filter: filter}
	page := &view.Page{Nav: "deadletters", Title: "Dead letters"}
	options := []view.Option{}
	for _, one := range s.Value {
		if len(one.letters) > 0 {
			f.Stream = cmp.Or(f.Stream, one.Config.Name)
			options = append(options, view.Option{Value: one.Config.Name, Text: one.Config.Name + " (" + one.count() + ")"})
		}
	}
	if f.Stream == "" {
		st := d.letters(s.Value).Of()
		page.Parts = []view.Part{{
			ID: "deadletters", Source: source("NATS", s), Problem: st.Sentence, ProblemTone: st.Level.Tone(),
			List: &view.List{Found: view.Bounded(0, false, "dead letter"), Empty: inSentence("no dead letters", nil)},
		}}
		return page, nil
	}
	info, err := d.source.Stream(ctx, f.Stream)
	if err != nil {
		return nil, streamError(f.Stream, err)
	}
	find := search{source: d.source, info: info, high: info.State.LastSeq, most: maxScanned, atOnce: letterWindow, fits: f.fits()}
	if err := find.begin(q); err != nil {
		return nil, err
	}
	all := len(filter) == 0
	if all {
		find.atOnce = pageSize + 1
	}
	part, found, looked, _ := find.list(ctx, r, "deadletters", "dead letter", pageSize)
	page.Static = !all || find.from < find.high || looked > letterWindow // static if reading it again takes a search
	part.List.Found = fmt.Sprintf("%s shown, newest first; ", view.Bounded(len(found), false, "dead letter"))
	if i := slices.IndexFunc(s.Value, func(one letterStream) bool { return one.Config.Name == f.Stream && len(one.letters) > 0 }); i >= 0 {
		one := s.Value[i]
		part.List.Found += one.count() + " "
		st := d.letters(s.Value[i : i+1]).Of()
		part.Problem, part.ProblemTone = cmp.Or(part.Problem, st.Sentence), cmp.Or(part.ProblemTone, st.Level.Tone())
		if all {
			part.Facts = one.reasons()
		}
	} else {
		options = append(options, view.Option{Value: f.Stream, Text: f.Stream})
	}
	part.List.Found += "in stream " + f.Stream
	show(part.List, letterColumns(f.Stream), found, func(m brief) string { return fmt.Sprint("d-", m.Sequence) })
	if one := d.mark(info); one.By != "" {
		part.Lines = append(part.Lines, one.words())
	}
	if len(found) > 0 {
		part.Actions = d.allActions(r, info, f)
	}
	if len(found) > 0 && all {
		part.Lines = append(part.Lines, "To purge many, set a filter first.")
		present := look{Object: "dead letters of " + f.Stream, Sequence: info.State.LastSeq, Created: info.Created}
		part.Actions = append(part.Actions[:1], d.marks.action(present, r))
	}
	page.Filter = append([]view.Field{
		{Name: "stream", Label: "Stored in", Value: f.Stream, Options: options},
		searchField(q, "reason", "Reason", "part of the error"),
		entry(q, "origin", "From stream", ""),
		entry(q, "consumer", "Consumer", ""),
	}, timeFields(q, "Since", "Until")...)
	page.Parts = []view.Part{part}
	return page, nil
}

// count returns the number of known dead letters of the stream.
func (s letterStream) count() string { return view.Bounded(len(s.letters), s.next > 0, "dead letter") }

// reasons returns the reasons that several of the dead letters have.
func (s letterStream) reasons() []view.Fact {
	counts := map[string]int{}
	for _, one := range s.letters {
		counts[one.reason]++
	}
	return grouped(counts, 2, s.next > 0, func(reason string, n view.Value) view.Fact {
		return view.Fact{Name: view.Text(reason).Text, Value: leads(n, link("deadletters", "stream", s.Config.Name, "reason", reason))}
	})
}

// letterColumns returns the columns of the list. The page of a dead letter shows the values from the second on.
func letterColumns(stream string) []column[brief] {
	return []column[brief]{
		number("Given up", func(m brief) view.Value { return leads(view.Ago(m.Time, ""), messageLink(stream, m.Sequence).Href) }),
		text("From", func(m brief) view.Value {
			origin, seq := m.Header.Get(jetpull.HeaderDeadStream), m.Header.Get(jetpull.HeaderDeadSequence)
			return view.Linked(origin+" "+seq, link("message", "stream", origin, "seq", seq))
		}),
		text("Consumer", func(m brief) view.Value {
			consumer := m.Header.Get(jetpull.HeaderDeadConsumer)
			return view.Linked(consumer, link("consumer", "stream", m.Header.Get(jetpull.HeaderDeadStream), "name", consumer))
		}),
		text("Subject", func(m brief) view.Value { return view.Text(m.Header.Get(jetpull.HeaderDeadSubject)) }),
		number("Attempts", func(m brief) view.Value { return view.Text(m.Header.Get(jetpull.HeaderDeadAttempts)) }),
		text("Reason", func(m brief) view.Value { return view.Sentence(m.Header.Get(jetpull.HeaderDeadReason)) }).wide(),
	}
}

// allActions returns the actions for all dead letters that match a filter.
func (d *DeadLetters) allActions(r Request, info *jetstream.StreamInfo, f letterFilter) []view.Action {
	f.Created, f.Last = info.Created, info.State.LastSeq
	which := filtered("dead letters of "+f.Stream, f.Filter)
	action := func(verb string, a view.Action) view.Action {
		a.Name, a.Label, a.Target = verb+"-all", capital(verb)+" all that match", which
		a.Confirm += " The operation runs in the background, and can be cancelled."
		a.Fields = append(a.Fields, rateField("no limit"), view.Field{Name: "stream", Value: f.Stream, Hidden: true})
		a.Do = func(ctx context.Context, form url.Values) (view.Outcome, error) {
			if s := form.Get("stream"); s != "" && s != f.Stream { // the page now shows another first stream
				return view.Outcome{}, impossible("Open the page again.", "This page is that of stream %s now. Nothing was changed.", f.Stream)
			}
			rate, err := parseRate(form.Get("rate"))
			if err != nil {
				return view.Outcome{}, err
			}
			return begun(d.runner.Begin(ctx, verb+matching, r.User, which, f.to(form), rate))
		}
		return a
	}
	return []view.Action{
		action("requeue", view.Action{
			Confirm: inSentence("requeue all", which),
			Fields:  []view.Field{onlyField, otherSubject},
			Preview: func(ctx context.Context, form url.Values) string { return d.recipients(ctx, f.to(form)) },
		}),
		action("purge", view.Action{
			Confirm: "Delete all " + which + ". This cannot be undone.", Danger: true, Word: "purge",
			Preview: func(ctx context.Context, _ url.Values) string {
				return d.preview(ctx, f, func(context.Context, *jetstream.RawStreamMsg) error { return nil })
			},
		}),
	}
}

// recipients returns the preview of a requeue: what is published, and to which consumers.
func (d *DeadLetters) recipients(ctx context.Context, f letterFilter) string {
	rule, tally, reached := requeue.New(d.source.Stream, d.source.Inbox()), requeue.Tally{}, map[string]*consumer{}
	all, known := d.consumers.audience(ctx)
	text := d.preview(ctx, f, func(ctx context.Context, m *jetstream.RawStreamMsg) error {
		published, err := d.again(ctx, rule, f, m)
		if _, refused := errors.AsType[requeue.Refusal](err); err != nil && !refused {
			return err
		}
		subject := ""
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

var otherSubject = view.Field{Name: "subject", Label: "To another subject (empty: the one that it had)"}
