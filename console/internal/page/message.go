package page

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull/console/internal/view"
	"github.com/jetpull/jetpull/internal/requeue"
	"github.com/jetpull/jetpull/internal/systems"
)

// of is the request for a message of a stream. Nobody sees payloads of the systems' own streams: they have tokens and signing secrets, which
// the systems' own pages leave out.
func (r Request) of(info *jetstream.StreamInfo, one *jetstream.RawStreamMsg) Request {
	if ofSystem(info, one) != "" {
		r.Payloads = false
	}
	return r
}

// ofSystem is the system that a message belongs to; empty: none.
func ofSystem(info *jetstream.StreamInfo, one *jetstream.RawStreamMsg) string {
	return cmp.Or(systems.OfStream(info.Config.Name, info.Config.Subjects), systems.OfSubject(one.Subject))
}

// message shows one message.
func (m *Messages) message(ctx context.Context, r Request) (*view.Page, error) {
	stream, seq := r.Query.Get("stream"), strings.TrimSpace(r.Query.Get("seq"))
	n, err := parseSequence(seq)
	if err != nil {
		return nil, err
	}
	var one *jetstream.RawStreamMsg
	info, err := m.source.Stream(ctx, stream)
	if err == nil {
		one, err = m.source.Message(ctx, stream, n)
	}
	if err != nil {
		err = streamError(stream, err)
	}
	page := &view.Page{
		Nav: "streams", Title: "Message " + seq, Static: !r.Query.Has("outcome"),
		Crumbs: []view.Link{{Text: "Messages", Href: "streams"}, {Text: stream, Href: link("messages", "stream", stream, "seq", seq)}},
	}
	if p, ok := errors.AsType[*Problem](err); ok && p.Status == http.StatusNotFound && r.Query.Has("outcome") {
		// After a requeue, the message may have been handled before its page is open.
		page.Parts = []view.Part{{ID: "message", Problem: p.Text + " " + p.Fix}}
		return page, nil
	}
	if err != nil {
		return nil, err
	}
	r = r.of(info, one)
	if r.Query.Has("download") {
		return download(r, stream+"-"+seq, one.Data)
	}
	var before, after uint64
	look := search{source: m.source, info: info, most: 1, atOnce: 1}
	_, _, err = look.back(ctx, one.Sequence-1, func(m *jetstream.RawStreamMsg) bool {
		before = m.Sequence
		return false
	})
	following, failed := m.source.Messages(ctx, info, one.Sequence+1, ">", 1)
	if err := cmp.Or(err, failed); err != nil {
		return nil, streamError(stream, err)
	}
	for _, m := range following {
		after = m.Sequence
	}
	part := view.Part{
		ID: "message", Source: view.Source{Name: "NATS", Asked: r.Now},
		Texts: []view.Block{payloadBlock(one.Data, r, "message", "stream", stream, "seq", seq)},
		Facts: []view.Fact{
			{Name: "Subject", Value: view.Text(one.Subject)}, {Name: "Stored", Value: view.Ago(one.Time, "")},
			{Name: "Size", Value: view.Bytes(uint64(len(one.Data)))},
			{Name: "Previous message", Value: messageLink(stream, before)}, {Name: "Next message", Value: messageLink(stream, after)},
		},
	}
	switch system := ofSystem(info, one); {
	case system != "":
		part.Problem, part.ProblemTone = "This message belongs to the "+system+". Its payload and headers are shown to nobody, because they may have "+
			"tokens and secrets.", view.Warn
		part.Texts = nil
	case isDeadLetter(one):
		m.letters.describe(ctx, page, &part, stream, one)
		fallthrough
	default:
		part.Actions = append(part.Actions, m.copyAction(stream, one))
	}
	page.Parts = []view.Part{part, *m.fates(ctx, one, stream)}
	if len(one.Header) > 0 && r.Payloads {
		page.Parts = append(page.Parts, headersPart(one.Header))
	}
	return page, nil
}

// copyAction publishes a message again. Headers that the server acts on are left out.
func (m *Messages) copyAction(stream string, one *jetstream.RawStreamMsg) view.Action {
	return view.Action{
		Name: "copy", Label: "Publish a copy", Target: fmt.Sprintf("%s/%d", stream, one.Sequence),
		Confirm: "Publish a copy of this message. Whoever listens to the subject gets it as a new message. The original stays where it is.",
		Fields:  []view.Field{{Name: "subject", Label: "Subject", Value: one.Subject, Required: true}},
		Do: func(ctx context.Context, form url.Values) (view.Outcome, error) {
			subject := strings.TrimSpace(form.Get("subject"))
			if err := requeue.Subject(subject, m.source.Inbox()); err != nil {
				return view.Outcome{}, invalid("Give a subject without wildcards and blanks, such as orders.new.", "The copy was not published: %v.", err)
			}
			to, seq, err := m.source.Publish(ctx, &nats.Msg{Subject: subject, Header: requeue.Headers(one.Header, "Nats-"), Data: one.Data})
			if err != nil {
				return view.Outcome{}, unavailable(err, "A stream must take the subject "+subject+". The original is unchanged.",
					"The copy was not stored")
			}
			return done(fmt.Sprintf("Published a copy to %s. Stream %s has it as message %d.", subject, to, seq)), nil
		},
	}
}
