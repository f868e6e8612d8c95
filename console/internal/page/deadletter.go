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
	"github.com/jetpull/jetpull/console/internal/view"
	"github.com/jetpull/jetpull/internal/requeue"
	"github.com/jetpull/jetpull/internal/stored"
)

// describe turns the page of a message into that of a dead letter, with everything that is known of it.
func (d *DeadLetters) describe(ctx context.Context, page *view.Page, part *view.Part, stream string, m *jetstream.RawStreamMsg) {
	page.Nav, page.Title = "deadletters", fmt.Sprintf("Dead letter %d", m.Sequence)
	page.Crumbs = []view.Link{{Text: "Dead letters", Href: "deadletters"}, {Text: stream, Href: link("deadletters", "stream", stream)}}
	part.Problem, part.ProblemTone = cmp.Or(m.Header.Get(jetpull.HeaderDeadReason), "No reason is stated."), view.Bad
	part.Facts[0].Name = "Subject of the dead letter"
	part.Facts = append(facts(briefly(m), letterColumns(stream)[1:5]), part.Facts...)
	part.Actions = d.oneActions(ctx, stream, m)
}

func (d *DeadLetters) oneActions(ctx context.Context, stream string, m *jetstream.RawStreamMsg) []view.Action {
	target := fmt.Sprintf("%s/%d", stream, m.Sequence)
	back, h := link("deadletters", "stream", stream), m.Header
	all, known := d.consumers.audience(ctx)
	return []view.Action{
		{
			Name: "requeue", Label: "Requeue", Target: target,
			// The field is not prefilled with the message's subject, because then the dead letter's author would choose it in the user's name.
			Fields: []view.Field{onlyField, otherSubject},
			Confirm: fmt.Sprintf("Publish this message to %s again, or to another subject, and delete the dead letter. ", h.Get(jetpull.HeaderDeadSubject)) +
				names(who(all, h.Get(jetpull.HeaderDeadStream), h.Get(jetpull.HeaderDeadSubject)), known),
			Do: func(ctx context.Context, form url.Values) (view.Outcome, error) {
				f := letterFilter{Stream: stream}.to(form)
				if f.Subject == h.Get(jetpull.HeaderDeadSubject) {
					f.Subject = ""
				}
				ack, err := d.publishAgain(ctx, requeue.New(d.source.Stream, d.source.Inbox()), f, m)
				if err != nil {
					return view.Outcome{}, unconfirmed(err, "The stream of its origin must take its subject. Correct that, or give another subject.",
						"The dead letter stays here")
				}
				return view.Outcome{
					Count: 1, Text: fmt.Sprintf("Requeued: stream %s has it as message %d. The dead letter is deleted.", ack.Stream, ack.Sequence),
					Then: link("message", "stream", ack.Stream, "seq", strconv.FormatUint(ack.Sequence, 10), "outcome", "1"),
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

// again returns the message that a requeue publishes: to its original subject, to the subject of its consumer alone, or to another subject.
func (d *DeadLetters) again(ctx context.Context, rule *requeue.Rule, f letterFilter, m *jetstream.RawStreamMsg) (*nats.Msg, error) {
	l := requeue.Read(f.Stream, m.Sequence, m.Time, m.Header, m.Data)
	if l == nil {
		return nil, requeue.Refusal("it is no dead letter")
	}
	if f.Own {
		all, known := d.consumers.audience(ctx)
		if !known {
			return nil, errors.New("which consumers there are is not known now")
		}
		if l.Subject = ownSubject(all, l.Stream, l.Consumer); l.Subject == "" {
			return nil, requeue.Refusal("its consumer has no subject of its own: give it a filter that no other consumer has, such as requeue.NAME, " +
				"and the stream that subject")
		}
	}
	return rule.Message(ctx, l, f.Subject)
}

// publishAgain publishes the message of a dead letter, and deletes the dead letter when a stream has confirmed the message. It returns where the
// message is now.
func (d *DeadLetters) publishAgain(ctx context.Context, rule *requeue.Rule, f letterFilter, m *jetstream.RawStreamMsg) (*jetstream.PubAck, error) {
	message, err := d.again(ctx, rule, f, m)
	if err != nil {
		return nil, err
	}
	ack, err := d.source.PublishMsg(ctx, message)
	if err != nil {
		return nil, fmt.Errorf("publish to %s: %w", message.Subject, err)
	}
	if err := d.source.DeleteMessage(ctx, f.Stream, m.Sequence); err != nil {
		return nil, fmt.Errorf("it was published to %s, but not deleted here: %w", message.Subject, err)
	}
	return ack, nil
}

// addKind adds an operation on the dead letters that match a filter. It selects them in windows, oldest first.
func (d *DeadLetters) addKind(kind string, do func(context.Context, *requeue.Rule, letterFilter, *jetstream.RawStreamMsg) error) {
	d.runner.Add(kind, true, letterWindow, func(ctx context.Context, selection json.RawMessage, from uint64, limit int) (
		all []func(context.Context) error, next uint64, err error,
	) {
		var f letterFilter
		if err := json.Unmarshal(selection, &f); err != nil {
			return nil, 0, err
		}
		info, err := d.source.Stream(ctx, f.Stream)
		if err != nil {
			return nil, 0, err
		}
		if !info.Created.Equal(f.Created) {
			return nil, 0, fmt.Errorf("%w: stream %s was deleted and created again", stored.ErrNotFound, f.Stream)
		}
		found, err := d.source.Messages(ctx, info, from, ">", limit)
		if err != nil {
			return nil, 0, err
		}
		rule, fits := requeue.New(d.source.Stream, d.source.Inbox()), f.fits() // of this window alone, because a rule remembers the streams
		for _, m := range found {
			if m.Sequence > f.Last {
				return all, 0, nil
			}
			if next = m.Sequence + 1; fits(m) {
				all = append(all, func(ctx context.Context) error { return do(ctx, rule, f, m) })
			}
		}
		return all, next, nil
	})
}

// preview describes how many dead letters match. The count stops at maxScanned. It calls see for each dead letter.
func (d *DeadLetters) preview(ctx context.Context, f letterFilter, see func(context.Context, *jetstream.RawStreamMsg) error) string {
	ctx, cancel := context.WithTimeout(ctx, scanTime)
	defer cancel()
	var n int
	var next uint64
	var unseen error
	info, err := d.source.Stream(ctx, f.Stream)
	if err == nil {
		fits := f.fits()
		find := search{source: d.source, info: info, most: math.MaxInt, atOnce: letterWindow}
		next, _, err = find.back(ctx, f.Last, func(m *jetstream.RawStreamMsg) bool {
			if !fits(m) {
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
	}
	if err = cmp.Or(unseen, err); unseen != nil || err != nil && n == 0 { // otherwise a part was counted
		return "How many these are is not known, since the server did not answer in time: " + err.Error()
	}
	return "That is " + view.Bounded(n, next > 0, "dead letter") + " at this moment. Nothing has been changed yet."
}
