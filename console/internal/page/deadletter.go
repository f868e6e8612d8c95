package page

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/url"
	"strconv"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/console/internal/operation"
	"github.com/jetpull/jetpull/console/internal/view"
	"github.com/jetpull/jetpull/internal/requeue"
)

// one shows all that is known of a dead letter.
func (d *DeadLetters) one(ctx context.Context, r Request) (*view.Page, error) {
	info, m, err := read(ctx, d.source, &r)
	if err != nil {
		return nil, err
	}
	stream, seq, h := info.Config.Name, m.Sequence, m.Header
	if !isDeadLetter(m) || ofSystem(info, m) != "" {
		return nil, notFound("Look at it as a message of its stream.", "Message %d of stream %s is no dead letter.", seq, stream)
	}
	if r.Query.Has("download") {
		return download(r, stream+"-"+strconv.FormatUint(seq, 10), m.Data)
	}
	part := view.Part{
		ID: "deadletter", Source: view.Source{Name: "NATS", Asked: r.Now},
		Problem: cmp.Or(h.Get(jetpull.HeaderDeadReason), "No reason is stated."), ProblemTone: view.Bad,
		Facts: append(facts(briefly(m), letterColumns(stream)[1:5]),
			view.Fact{Name: "Given up", Value: view.Ago(m.Time, "")}, view.Fact{Name: "Size", Value: view.Bytes(uint64(len(m.Data)))}),
		Texts:   []view.Block{payloadBlock(m.Data, r, "deadletter", "stream", stream, "seq", strconv.FormatUint(seq, 10))},
		Actions: d.oneActions(ctx, stream, m),
	}
	page := &view.Page{
		Nav: "deadletters", Title: fmt.Sprintf("Dead letter %d", seq), Static: true,
		Crumbs: []view.Link{{Text: "Dead letters", Href: "deadletters"}, {Text: stream, Href: link("deadletters", "stream", stream)}},
		Parts:  []view.Part{part},
	}
	if r.Payloads {
		page.Parts = append(page.Parts, headersPart(h))
	}
	return page, nil
}

func (d *DeadLetters) oneActions(ctx context.Context, stream string, m *jetstream.RawStreamMsg) []view.Action {
	target := fmt.Sprintf("%s/%d", stream, m.Sequence)
	back, h := link("deadletters", "stream", stream), m.Header
	all, known := d.consumers.audience(ctx)
	return []view.Action{
		{
			Name: "requeue", Label: "Requeue", Target: target,
			// The field does not begin with the subject that it had: whoever has written the dead letter would choose what counts as the user's own.
			Fields: []view.Field{onlyField, otherSubject},
			Confirm: fmt.Sprintf("Publish this message to %s again, or to another subject, and delete the dead letter. ", h.Get(jetpull.HeaderDeadSubject)) +
				names(who(all, h.Get(jetpull.HeaderDeadStream), h.Get(jetpull.HeaderDeadSubject)), known),
			Do: func(ctx context.Context, form url.Values) (view.Outcome, error) {
				f := letterFilter{Stream: stream}.to(form)
				if f.Subject == h.Get(jetpull.HeaderDeadSubject) {
					f.Subject = ""
				}
				to, seq, err := d.publishAgain(ctx, d.rule(), f, m)
				if err != nil {
					return view.Outcome{}, unavailable(err, "The stream of its origin must take its subject. Correct that, or give another subject.",
						"The dead letter was not requeued, and stays here")
				}
				return view.Outcome{
					Count: 1, Text: fmt.Sprintf("Requeued: stream %s has it as message %d. The dead letter is deleted.", to, seq),
					Then: link("message", "stream", to, "seq", strconv.FormatUint(seq, 10), "outcome", "1"),
				}, nil
			},
		},
		{
			Name: "purge", Label: "Purge", Target: target, Danger: true,
			Confirm: fmt.Sprintf("Delete dead letter %d of stream %s with its payload. This cannot be undone.", m.Sequence, stream),
			Do: act(func(err error) error { return streamError(stream, err) }, func(ctx context.Context, _ url.Values) (view.Outcome, error) {
				return view.Outcome{Count: 1, Text: fmt.Sprintf("Deleted dead letter %d.", m.Sequence), Then: back},
					d.source.DeleteMessage(ctx, stream, m.Sequence)
			}),
		},
	}
}

// rule is that of a requeue. It is made for each operation, because it remembers the streams.
func (d *DeadLetters) rule() *requeue.Rule {
	return requeue.New(d.source.Stream, d.source.Inbox())
}

// again is the message that a requeue publishes: to the subject that it had, to that of its consumer alone, or to another one.
func (d *DeadLetters) again(ctx context.Context, rule *requeue.Rule, f letterFilter, m *jetstream.RawStreamMsg) (*nats.Msg, error) {
	h := m.Header
	l := requeue.Letter{
		Stream: f.Stream, Sequence: m.Sequence, Time: m.Time, Subject: h.Get(jetpull.HeaderDeadSubject), Origin: h.Get(jetpull.HeaderDeadStream),
		Gone: h.Get(jetpull.HeaderDeadPayload) != "", Header: h, Data: m.Data,
	}
	if f.Own {
		all, known := d.consumers.audience(ctx)
		if !known {
			return nil, errors.New("which consumers there are is not known now")
		}
		if l.Subject = ownSubject(all, l.Origin, h.Get(jetpull.HeaderDeadConsumer)); l.Subject == "" {
			return nil, errNoSubject
		}
	}
	return rule.Message(ctx, l, f.Subject)
}

// publishAgain publishes the message of a dead letter, and deletes the dead letter when a stream has confirmed it. It returns where the
// message is now.
func (d *DeadLetters) publishAgain(ctx context.Context, rule *requeue.Rule, f letterFilter, m *jetstream.RawStreamMsg) (stream string, seq uint64,
	err error,
) {
	message, err := d.again(ctx, rule, f, m)
	if err != nil {
		return "", 0, err
	}
	if stream, seq, err = d.source.Publish(ctx, message); err != nil {
		return "", 0, fmt.Errorf("publish to %s: %w", message.Subject, err)
	}
	if err := d.source.DeleteMessage(ctx, f.Stream, m.Sequence); err != nil {
		return "", 0, fmt.Errorf("it was published to %s, but not deleted here: %w", message.Subject, err)
	}
	return stream, seq, nil
}

// The kinds of operations on dead letters.
const (
	kindRequeue = "requeue dead letters"
	kindPurge   = "purge dead letters"
)

// addKinds adds the operations on dead letters to the runner.
func (d *DeadLetters) addKinds() {
	for kind, do := range map[string]letterDo{
		kindRequeue: func(ctx context.Context, rule *requeue.Rule, f letterFilter, m *jetstream.RawStreamMsg) error {
			_, _, err := d.publishAgain(ctx, rule, f, m)
			return err
		},
		kindPurge: func(ctx context.Context, _ *requeue.Rule, f letterFilter, m *jetstream.RawStreamMsg) error {
			return d.source.DeleteMessage(ctx, f.Stream, m.Sequence)
		},
	} {
		d.runner.Add(kind, true, letterWindow, d.selector(do))
	}
}

// letterDo is what an operation does to a dead letter.
type letterDo func(context.Context, *requeue.Rule, letterFilter, *jetstream.RawStreamMsg) error

// count is how many dead letters match. It stops at maxScanned, with more. Each is passed to see.
func (d *DeadLetters) count(ctx context.Context, f letterFilter, see func(context.Context, *jetstream.RawStreamMsg) error) (n int, more bool,
	err error,
) {
	ctx, cancel := context.WithTimeout(ctx, scanTime)
	defer cancel()
	info, err := d.source.Stream(ctx, f.Stream)
	if err != nil {
		return 0, false, err
	}
	var unseen error
	look := search{source: d.source, info: info, most: math.MaxInt, atOnce: letterWindow}
	next, _, err := look.back(ctx, f.Last, func(m *jetstream.RawStreamMsg) bool {
		if !f.fits(m) {
			return true
		}
		if n == maxScanned {
			return false
		}
		if unseen = see(ctx, m); unseen == nil {
			n++
		}
		return unseen == nil
	})
	if n > 0 {
		err = nil // a part is counted
	}
	return n, next > 0, cmp.Or(unseen, err)
}

// selector selects the dead letters of an operation, and has do done to each.
func (d *DeadLetters) selector(do letterDo) operation.Selector {
	return func(ctx context.Context, selection json.RawMessage, from uint64, limit int) (all []func(context.Context) error, next uint64, err error) {
		var f letterFilter
		if err := json.Unmarshal(selection, &f); err != nil {
			return nil, 0, err
		}
		info, err := d.source.Stream(ctx, f.Stream)
		if err != nil {
			return nil, 0, err
		}
		found, err := d.source.Messages(ctx, info, from, ">", limit)
		if err != nil || len(found) == 0 {
			return nil, 0, err
		}
		rule := d.rule()
		for _, m := range found {
			if m.Sequence > f.Last {
				return all, 0, nil
			}
			if f.fits(m) {
				all = append(all, func(ctx context.Context) error { return do(ctx, rule, f, m) })
			}
		}
		return all, found[len(found)-1].Sequence + 1, nil
	}
}
