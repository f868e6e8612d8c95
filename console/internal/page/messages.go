package page

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull/console/internal/sample"
	"github.com/jetpull/jetpull/console/internal/view"
	"github.com/jetpull/jetpull/internal/requeue"
	"github.com/jetpull/jetpull/internal/systems"
)

// MessageSource reads the messages of streams. It never makes a consumer, so no message is taken from a worker.
type MessageSource interface {
	Streams(ctx context.Context) ([]*jetstream.StreamInfo, error)
	Stream(ctx context.Context, name string) (*jetstream.StreamInfo, error)
	// Messages are up to n messages from a sequence on whose subjects match. It returns what it has read before an error, too.
	Messages(ctx context.Context, stream *jetstream.StreamInfo, from uint64, subject string, n int) ([]*jetstream.RawStreamMsg, error)
	Message(ctx context.Context, stream string, seq uint64) (*jetstream.RawStreamMsg, error)
	// Publish stores a message in the stream that takes its subject.
	Publish(ctx context.Context, m *nats.Msg) (stream string, seq uint64, err error)
	// Inbox is the prefix of the connection's inboxes.
	Inbox() string
	// DeleteMessage deletes a message. One that is gone is no error.
	DeleteMessage(ctx context.Context, stream string, seq uint64) error
}

// Messages are the pages of the streams and their messages.
type Messages struct {
	source MessageSource
	latest *sample.Latest[[]*jetstream.StreamInfo]
}

// NewMessages makes the pages, and has the sampler ask their source.
func NewMessages(s *sample.Sampler, source MessageSource) *Messages {
	return &Messages{source: source, latest: sample.Add(s, source.Streams)}
}

// Pages are the functions of the pages by their paths.
func (m *Messages) Pages() map[string]Func {
	return map[string]Func{"streams": m.streams, "messages": m.messages, "message": m.message}
}

var streamOrders = map[string]func(a, b *jetstream.StreamInfo) int{
	"name":      func(a, b *jetstream.StreamInfo) int { return cmp.Compare(a.Config.Name, b.Config.Name) },
	"messages":  func(a, b *jetstream.StreamInfo) int { return cmp.Compare(a.State.Msgs, b.State.Msgs) },
	"bytes":     func(a, b *jetstream.StreamInfo) int { return cmp.Compare(a.State.Bytes, b.State.Bytes) },
	"consumers": func(a, b *jetstream.StreamInfo) int { return cmp.Compare(a.State.Consumers, b.State.Consumers) },
	"last":      func(a, b *jetstream.StreamInfo) int { return a.State.LastTime.Compare(b.State.LastTime) },
}

func (m *Messages) streams(ctx context.Context, r Request) (*view.Page, error) {
	s := m.latest.Fresh(ctx)
	q := r.Query
	var rows []*jetstream.StreamInfo
	for _, info := range s.Value {
		if contains(q.Get("q"), append(info.Config.Subjects, info.Config.Name)...) {
			rows = append(rows, info)
		}
	}
	sorted, descending := order(q, rows, streamOrders, "name", false)
	shown, previous, next := slice(q, rows)
	list := &view.List{
		Found: view.Bounded(len(rows), false, "stream"), Path: "streams", Query: q, Sorted: sorted, Descending: descending, Previous: previous, Next: next,
		Empty: "This list shows the streams of the account. Create one with `nats stream add`.",
		Columns: []view.Column{
			{Title: "Stream", Sort: "name"},
			{Title: "Subjects", Wide: true},
			{Title: "Messages", Number: true, Sort: "messages"},
			{Title: "Size", Number: true, Sort: "bytes"},
			{Title: "Consumers", Number: true, Sort: "consumers"},
			{Title: "Oldest message", Number: true},
			{Title: "Newest message", Number: true, Sort: "last"},
		},
	}
	if len(rows) == 0 && len(s.Value) > 0 {
		list.Empty = fmt.Sprintf("None of the %s matches this filter.", view.Count(uint64(len(s.Value)), "stream"))
	}
	for _, info := range shown {
		consumers := view.Int(info.State.Consumers)
		if info.State.Consumers > 0 {
			consumers.Href = link("consumers", "stream", info.Config.Name)
		}
		list.Rows = append(list.Rows, view.Row{ID: "s-" + info.Config.Name, Cells: []view.Value{
			view.Linked(info.Config.Name, link("messages", "stream", info.Config.Name)),
			view.Text(strings.Join(info.Config.Subjects, ", ")),
			view.Number(info.State.Msgs), view.Bytes(info.State.Bytes), consumers,
			emptyTime(info.State.Msgs, info.State.FirstTime), emptyTime(info.State.LastSeq, info.State.LastTime),
		}})
	}
	return &view.Page{
		Nav: "streams", Title: "Messages",
		Filter: &view.Filter{Path: "streams", Fields: []view.Field{{
			Name: "q", Label: "Stream or subject", Value: q.Get("q"), Type: "search",
			Placeholder: "name or subject",
		}}},
		Parts: []view.Part{{ID: "streams", Source: source("NATS", s), List: list}},
	}, nil
}

func emptyTime(n uint64, at time.Time) view.Value {
	if n == 0 || at.Year() < 2000 {
		return view.None("There is no message")
	}
	return view.Ago(at, "")
}

// messageRows is how many messages a page of a list has.
const messageRows = 25

// messages lists the newest messages, or those from a sequence or time on. The newest are live. A list from a time on is not,
// since each render would search for its first message again.
func (m *Messages) messages(ctx context.Context, r Request) (*view.Page, error) {
	q := r.Query
	name := q.Get("stream")
	info, err := m.source.Stream(ctx, name)
	if err != nil {
		return nil, streamError(name, err)
	}
	subject := cmp.Or(strings.TrimSpace(q.Get("subject")), ">")
	from, err := m.begin(ctx, q, info, subject)
	if err != nil {
		return nil, err
	}
	found, err := m.source.Messages(ctx, info, from, subject, messageRows+1)
	part := view.Part{ID: "messages", Source: view.Source{Name: "NATS", Asked: r.Now}}
	if err != nil {
		part.Problem, part.ProblemTone = "The list ends early, since the server did not answer in time: "+err.Error(), view.Warn
	}
	list := &view.List{
		Path: "messages", Query: q,
		Found: fmt.Sprintf("%s in the stream, sequences %d to %d", view.Count(info.State.Msgs, "message"), info.State.FirstSeq, info.State.LastSeq),
		Empty: "No message from sequence " + strconv.FormatUint(from,
			10) + " on has such a subject. The list shows stored messages; `nats publish` or `jetpull publish` adds some.",
		Columns: []view.Column{
			{Title: "Sequence", Number: true},
			{Title: "Stored", Number: true},
			{Title: "Subject"},
			{Title: "Headers", Number: true},
			{Title: "Size", Number: true},
			{Title: "Payload", Wide: true},
		},
	}
	if len(found) > messageRows {
		list.Next = with(with(q, "seq", strconv.FormatUint(found[messageRows].Sequence, 10)), "since", "")
		found = found[:messageRows]
	}
	if len(found) > 0 && found[0].Sequence > info.State.FirstSeq && subject == ">" {
		list.Previous = with(with(q, "seq", strconv.FormatUint(max(info.State.FirstSeq, found[0].Sequence-min(found[0].Sequence-1, messageRows)), 10)),
			"since", "")
	}
	for _, one := range found {
		seq := strconv.FormatUint(one.Sequence, 10)
		list.Rows = append(list.Rows, view.Row{ID: "m-" + seq, Cells: []view.Value{
			view.Linked(seq, link("message", "stream", name, "seq", seq)), view.Ago(one.Time, ""), view.Text(one.Subject),
			view.Int(len(one.Header)), view.Bytes(uint64(len(one.Data))), r.of(info, one).glimpse(one.Data),
		}})
	}
	part.List = list
	return &view.Page{
		Nav: "streams", Title: name, Crumbs: []view.Link{{Text: "Messages", Href: "streams"}}, Static: q.Get("seq") != "" || q.Get("since") != "",
		Filter: &view.Filter{Path: "messages", Fields: []view.Field{
			{Name: "stream", Value: name, Hidden: true},
			{Name: "subject", Label: "Subject", Value: q.Get("subject"), Type: "search", Placeholder: "orders.*"},
			{Name: "seq", Label: "From sequence", Value: q.Get("seq"), Type: "number", Placeholder: "newest"},
			{Name: "since", Label: "or from time (UTC)", Value: q.Get("since"), Type: "datetime-local"},
		}},
		Parts: []view.Part{part},
	}, nil
}

// begin is the sequence at which a list of messages begins.
func (m *Messages) begin(ctx context.Context, q url.Values, info *jetstream.StreamInfo, subject string) (uint64, error) {
	if q.Get("seq") != "" {
		return parseSequence(q.Get("seq"))
	}
	if since := q.Get("since"); since != "" {
		at, err := parseTime(since)
		if err != nil {
			return 0, err
		}
		return m.after(ctx, info, at)
	}
	if subject != ">" || info.State.LastSeq < messageRows {
		return max(1, info.State.FirstSeq), nil
	}
	return max(info.State.FirstSeq, info.State.LastSeq-messageRows+1), nil
}

// after finds the first message that was stored at a time or later, with one request for each bit of the sequence.
func (m *Messages) after(ctx context.Context, info *jetstream.StreamInfo, at time.Time) (uint64, error) {
	low, high := max(1, info.State.FirstSeq), info.State.LastSeq+1
	for low < high {
		middle := low + (high-low)/2
		found, err := m.source.Messages(ctx, info, middle, ">", 1)
		if err != nil {
			return 0, streamError(info.Config.Name, err)
		}
		if len(found) == 0 || !found[0].Time.Before(at) {
			high = middle
		} else {
			low = found[0].Sequence + 1
		}
	}
	return low, nil
}

func parseTime(text string) (time.Time, error) {
	for _, layout := range []string{"2006-01-02T15:04", "2006-01-02T15:04:05", time.RFC3339} {
		if at, err := time.Parse(layout, text); err == nil {
			return at, nil
		}
	}
	return time.Time{}, invalid("Give a time in UTC, such as 2026-01-31T15:04.", "%q is no time.", text)
}

func streamError(name string, err error) error {
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound), errors.Is(err, jetstream.ErrInvalidStreamName), errors.Is(err, jetstream.ErrStreamNameRequired):
		return notFound("The list of streams shows all that there are.", "There is no stream %q.", name)
	case errors.Is(err, jetstream.ErrMsgNotFound):
		return notFound("It was acknowledged, deleted, or removed by the stream's limits.", "The stream %s does not have this message any more.", name)
	}
	return &Problem{
		Status: http.StatusBadGateway, Text: "NATS does not answer for stream " + name, Err: err,
		Fix: "Try again. If it stays so, look at the server.",
	}
}

// glimpse is the begin of a payload in one line.
func (r Request) glimpse(data []byte) view.Value {
	if !r.Payloads {
		return view.None(noPayload)
	}
	const most = 100
	text, cut := printable(data, most)
	text = strings.Join(strings.Fields(text), " ")
	if cut {
		text += "…"
	}
	return view.Code(text)
}

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

// read reads the message that a request names, with its stream, and states in the request whether the user may see its payload.
func read(ctx context.Context, source MessageSource, r *Request) (*jetstream.StreamInfo, *jetstream.RawStreamMsg, error) {
	stream := r.Query.Get("stream")
	seq, err := parseSequence(r.Query.Get("seq"))
	if err != nil {
		return nil, nil, err
	}
	info, err := source.Stream(ctx, stream)
	if err != nil {
		return nil, nil, streamError(stream, err)
	}
	one, err := source.Message(ctx, stream, seq)
	if err != nil {
		return nil, nil, streamError(stream, err)
	}
	*r = r.of(info, one)
	return info, one, nil
}

// message shows one message.
func (m *Messages) message(ctx context.Context, r Request) (*view.Page, error) {
	info, one, err := read(ctx, m.source, &r)
	if err != nil {
		return nil, err
	}
	stream, seq := r.Query.Get("stream"), strconv.FormatUint(one.Sequence, 10)
	if r.Query.Has("download") {
		return download(r, stream+"-"+seq, one.Data)
	}
	beside := func(seq uint64) string { return link("message", "stream", stream, "seq", strconv.FormatUint(seq, 10)) }
	facts := []view.Fact{
		{Name: "Subject", Value: view.Text(one.Subject)},
		{Name: "Stored", Value: view.Ago(one.Time, "")},
		{Name: "Size", Value: view.Bytes(uint64(len(one.Data)))},
		{Name: "Beside it", Value: view.Linked("the next sequence", beside(one.Sequence+1))},
	}
	part := view.Part{
		ID: "message", Source: view.Source{Name: "NATS", Asked: r.Now}, Facts: facts,
		Texts: []view.Block{payloadBlock(one.Data, r, "message", "stream", stream, "seq", seq)},
	}
	if system := ofSystem(info, one); system != "" {
		part.Problem, part.ProblemTone = "This message belongs to the "+system+". Its payload and headers are shown to nobody, because they may have "+
			"tokens and secrets.", view.Warn
		part.Texts = nil
	} else {
		part.Actions = []view.Action{m.copyAction(stream, one)}
	}
	page := &view.Page{
		Nav: "streams", Title: "Message " + seq, Static: true,
		Crumbs: []view.Link{{Text: "Messages", Href: "streams"}, {Text: stream, Href: link("messages", "stream", stream, "seq", seq)}},
		Parts:  []view.Part{part},
	}
	if len(one.Header) > 0 && r.Payloads {
		page.Parts = append(page.Parts, headersPart(one.Header))
	}
	return page, nil
}

func headersPart(h nats.Header) view.Part {
	part := view.Part{ID: "headers", Title: "Headers", List: &view.List{
		Found: view.Bounded(len(h), false, "header"), Path: "message", Columns: []view.Column{{Title: "Name"}, {Title: "Value", Wide: true}},
	}}
	for i, key := range slices.Sorted(maps.Keys(h)) {
		part.List.Rows = append(part.List.Rows, view.Row{
			ID:    "h-" + strconv.Itoa(i),
			Cells: []view.Value{view.Code(key), view.Code(strings.Join(h[key], "\n"))},
		})
	}
	return part
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
				return view.Outcome{}, &Problem{
					Status: http.StatusBadGateway, Err: err, Text: "The copy was not stored",
					Fix: "A stream must take the subject " + subject + ". The original is unchanged.",
				}
			}
			return view.Outcome{Count: 1, Text: fmt.Sprintf("Published a copy to %s. Stream %s has it as message %d.", subject, to, seq)}, nil
		},
	}
}
