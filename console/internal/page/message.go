package page

import (
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull/console/internal/view"
	"github.com/jetpull/jetpull/internal/requeue"
	"github.com/jetpull/jetpull/internal/systems"
	"github.com/jetpull/jetpull/internal/wire"
)

// of returns the request for a message of a stream. Nobody can see payloads of the systems' own streams, because they contain tokens and signing
// secrets, which the systems' own pages do not show.
func (r Request) of(info *jetstream.StreamInfo, one *jetstream.RawStreamMsg) Request {
	if ofSystem(info, one) != "" {
		r.Payloads = false
	}
	return r
}

// ofSystem returns the system to which a message belongs, or "".
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
		// After a requeue, the message may be handled before its page opens.
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
			{Name: "Subject", Value: view.Text(one.Subject)},
			{Name: "Stored", Value: view.Ago(one.Time, "")},
			{Name: "Size", Value: view.Bytes(uint64(len(one.Data)))},
			{Name: "Previous message", Value: messageLink(stream, before)},
			{Name: "Next message", Value: messageLink(stream, after)},
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

// copyAction returns the action that publishes a message again, without headers on which the server acts.
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
			ack, err := m.source.PublishMsg(ctx, &nats.Msg{Subject: subject, Header: requeue.Headers(one.Header, "Nats-"), Data: one.Data})
			if err != nil {
				return view.Outcome{}, unconfirmed(err, "A stream must take the subject "+subject+". The original is unchanged.",
					"The copy was not stored")
			}
			return done(fmt.Sprintf("Published a copy to %s. Stream %s has it as message %d.", subject, ack.Stream, ack.Sequence)), nil
		},
	}
}

// audience returns the consumers of all streams, which may get messages. They are not known while NATS does not answer.
func (c *Consumers) audience(ctx context.Context) (all []*consumer, known bool) {
	s := c.latest.Fresh(ctx)
	return s.Value, !s.Stale()
}

// who returns the consumers of a stream that get the messages of a subject.
func who(all []*consumer, stream, subject string) (found []*consumer) {
	for _, one := range all {
		subjects := filters(one.Config)
		if one.Stream == stream && (len(subjects) == 0 || slices.ContainsFunc(subjects, func(f string) bool { return wire.Matches(f, subject) })) {
			found = append(found, one)
		}
	}
	return found
}

// ownSubject returns a subject that only one consumer of a stream gets, or "". It is a filter of the consumer without wildcards.
func ownSubject(all []*consumer, stream, name string) string {
	for _, one := range all {
		for _, f := range filters(one.Config) {
			if one.Stream == stream && one.Name == name && wire.Publishable(f) && len(who(all, stream, f)) == 1 {
				return f
			}
		}
	}
	return ""
}

// names returns the names of consumers, for a sentence.
func names(all []*consumer, known bool) string {
	var shown []string
	for _, one := range all[:min(len(all), 20)] {
		shown = append(shown, one.key)
	}
	return inSentence("audience", map[string]any{"Known": known, "Shown": shown, "More": len(all) - len(shown)})
}

// onlyField offers to requeue to one consumer only.
var onlyField = choice(nil, "only", "For", options("", "every consumer of the subject", "own", "only the consumer that gave it up"))

// fates shows what each consumer of a stream has done with a message.
func (m *Messages) fates(ctx context.Context, one *jetstream.RawStreamMsg, stream string) *view.Part {
	all, known := m.consumers.audience(ctx)
	list := &view.List{
		Path: "message", Empty: names(nil, known), Columns: view.Columns("Consumer", "This message", "State"),
	}
	letters, complete := m.letters.of(ctx, stream, one.Sequence)
	for _, c := range who(all, stream, one.Subject) {
		fate := view.Word(view.Plain, "waits")
		switch {
		case letters[c.Name] != "":
			fate = view.Word(view.Bad, "given up")
			fate.Href = letters[c.Name]
		case !known:
			fate = view.Word(view.Muted, "not known now")
		case one.Sequence <= c.AckFloor.Stream:
			fate = view.Word(view.Plain, "passed")
			fate.Title = "The consumer has acknowledged it, has given it up, or began after it."
		case one.Sequence <= c.Delivered.Stream:
			fate = view.Word(view.Plain, "delivered, perhaps not acknowledged")
		}
		list.Add("who-"+c.key,
			c.linked(), fate, c.state.Value())
	}
	list.Found = view.Bounded(len(list.Rows), !known, "consumer") + " of this subject"
	if !complete {
		list.Found += "; not all dead letters were searched for this message"
	}
	return &view.Part{ID: "fates", Title: "Who gets it", List: list}
}

// of returns links to the known dead letters of a message, by consumer. complete reports that there are no others.
func (d *DeadLetters) of(ctx context.Context, stream string, seq uint64) (found map[string]string, complete bool) {
	found = map[string]string{}
	s := d.latest.Fresh(ctx)
	complete = !s.Stale()
	for _, in := range s.Value {
		complete = complete && !in.missed && (len(in.letters) > 0 || in.unread() == 0)
		for _, l := range in.letters {
			if l.stream == stream && l.origin == fmt.Sprint(seq) {
				found[l.consumer] = messageLink(in.Config.Name, l.seq).Href
			}
		}
	}
	return found, complete
}

// maxShown is how many bytes of a payload a page shows, and maxHex how many of them it shows as hex.
const (
	maxShown = 64 << 10
	maxHex   = 8 << 10
)

// payloadBlock shows a payload as text, JSON or hex: as the query's parameter "as" requires, or as the payload looks. The parameter "download" of its
// page sends the whole payload.
func payloadBlock(data []byte, r Request, page string, pairs ...string) view.Block {
	if !r.Payloads {
		return view.Block{Title: "Payload", Note: inSentence("no payload", nil)}
	}
	block := view.Block{}
	shown := upTo(data, maxShown)
	kinds := []string{"text", "hex"}
	switch {
	case !utf8.Valid(shown):
		kinds = []string{"hex", "text"}
	case len(data) <= maxShown && json.Valid(data):
		kinds = []string{"json", "text", "hex"}
	}
	kind := r.Query.Get("as")
	if !slices.Contains(kinds, kind) {
		kind = kinds[0]
	}
	for _, as := range kinds {
		block.Links = append(block.Links, view.Link{Text: as, Href: link(page, append([]string{"as", as}, pairs...)...)})
	}
	block.Links = append(block.Links, view.Link{Text: "download", Href: link(page, append([]string{"download", "1"}, pairs...)...)})
	switch kind {
	case "hex":
		shown = shown[:min(len(shown), maxHex)]
		block.Text = hex.Dump(shown)
	case "json":
		block.Fold = view.Fold(data)
		fallthrough // a single value, and a document that is too large, are not folded
	case "text":
		block.Text, _ = printable(shown, len(shown))
	}
	switch {
	case len(data) == 0:
		block.Note = "The payload is empty."
	case len(shown) < len(data):
		block.Note = fmt.Sprintf("These are the first %s of %s. The download has all of them.", view.Count(uint64(len(shown)), "byte"),
			view.Count(uint64(len(data)), "byte"))
	}
	block.Title = "Payload as " + kind
	return block
}

// download returns a payload for download in place of its page.
func download(r Request, name string, data []byte) (*view.Page, error) {
	if !r.Payloads {
		return nil, &Problem{Status: http.StatusForbidden, Text: inSentence("no payload", nil), Fix: "Sign in with the token of an administrator."}
	}
	return &view.Page{Download: &view.Download{Name: name + ".bin", Data: data}}, nil
}

// upTo returns the first bytes of data, at most most of them, without a part of a character at the end.
func upTo(data []byte, most int) []byte {
	for end := most; end < len(data) && end > max(0, most-utf8.UTFMax); end-- {
		if utf8.RuneStart(data[end]) {
			return data[:end]
		}
	}
	return data[:min(len(data), most)]
}

// printable returns the start of data as text. It replaces bytes that are not text, and characters that could change how the rest of the page is
// read.
func printable(data []byte, most int) (text string, cut bool) {
	shown := upTo(data, most)
	return strings.Map(func(r rune) rune {
		if r == utf8.RuneError || r != '\n' && r != '\t' && unicode.IsControl(r) {
			return '\uFFFD'
		}
		return r
	}, string(shown)), len(shown) < len(data)
}

// glimpse returns the start of a payload on one line.
func (r Request) glimpse(data []byte) view.Value {
	if !r.Payloads {
		return view.None(inSentence("no payload", nil))
	}
	text, cut := printable(data, glimpsed)
	text = strings.Join(strings.Fields(text), " ")
	if cut {
		text += "…"
	}
	return view.Code(text)
}

func headersPart(h nats.Header) view.Part {
	part := view.Part{ID: "headers", Title: "Headers", List: &view.List{
		Found: view.Bounded(len(h), false, "header"), Path: "message", Columns: view.Columns("Name", "*Value"),
	}}
	for i, key := range slices.Sorted(maps.Keys(h)) {
		part.List.Add("h-"+strconv.Itoa(i), view.Code(key), view.Code(strings.Join(h[key], "\n")))
	}
	return part
}
