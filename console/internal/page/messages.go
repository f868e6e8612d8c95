package page

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull/console/internal/sample"
	"github.com/jetpull/jetpull/console/internal/view"
	"github.com/jetpull/jetpull/internal/systems"
)

// MessageSource reads the messages of streams. It never makes a consumer, so no message is taken from a worker.
type MessageSource interface {
	Streams(ctx context.Context) ([]*jetstream.StreamInfo, error)
	Stream(ctx context.Context, name string) (*jetstream.StreamInfo, error)
	// Messages are up to n messages from a sequence on whose subjects match. It returns what it has read before an error, too.
	Messages(ctx context.Context, stream *jetstream.StreamInfo, from uint64, subject string, n int) ([]*jetstream.RawStreamMsg, error)
	Message(ctx context.Context, stream string, seq uint64) (*jetstream.RawStreamMsg, error)
	// Count is how many messages from a sequence on have subjects that match; empty: all.
	Count(ctx context.Context, stream *jetstream.StreamInfo, from uint64, subject string) (uint64, error)
	// Publish stores a message in the stream that takes its subject.
	Publish(ctx context.Context, m *nats.Msg) (stream string, seq uint64, err error)
	// Subjects are the numbers of messages of each subject.
	Subjects(ctx context.Context, stream string) (map[string]uint64, error)
	// Inbox is the prefix of the connection's inboxes.
	Inbox() string
	// DeleteMessage deletes a message. One that is gone is no error.
	DeleteMessage(ctx context.Context, stream string, seq uint64) error
}

// Messages are the pages of the streams and their messages.
type Messages struct {
	source    MessageSource
	latest    *sample.Latest[[]judgedStream]
	consumers *Consumers
	letters   *DeadLetters
	history   *sample.History
	before    map[string]judgedStream // only the sampler's goroutine uses it
}

// NewMessages makes the pages, and has the sampler ask their source. The page of a message states what its consumers have done with it.
func NewMessages(s *sample.Sampler, source MessageSource, consumers *Consumers, letters *DeadLetters) *Messages {
	m := &Messages{source: source, consumers: consumers, letters: letters, history: s.History("streams", streamWidth)}
	m.latest = sample.Add(s, m.ask)
	consumers.internal = m.internalStreams
	return m
}

// Pages are the functions of the pages by their paths.
func (m *Messages) Pages() map[string]Func {
	return map[string]Func{"streams": m.streams, "stream": m.stream, "messages": m.messages, "message": m.message}
}

// messageRows is how many messages a page of a list has.
const messageRows = 25

// messageFilter selects messages of a stream.
type messageFilter struct {
	subject          string // empty: all
	text, header, id string // parts of the payload and of a header, and a Nats-Msg-Id
	low, high        uint64 // the sequences of the time range
	info             *jetstream.StreamInfo
}

// reads reports whether the payload or the headers of each message decide whether it fits. The server selects by subject and sequence.
func (f *messageFilter) reads() bool { return f.text != "" || f.header != "" || f.id != "" }

func (f *messageFilter) fits(m *jetstream.RawStreamMsg) bool {
	if f.id != "" && m.Header.Get(jetstream.MsgIDHeader) != f.id || f.text != "" && !bytes.Contains(m.Data, []byte(f.text)) {
		return false
	}
	if f.reads() && ofSystem(f.info, m) != "" {
		return false // what is shown to nobody cannot be guessed by a search either
	}
	for name, values := range m.Header {
		if contains(f.header, name+": "+strings.Join(values, ", ")) {
			return true
		}
	}
	return f.header == ""
}

// filter is that of a query.
func (m *Messages) filter(ctx context.Context, q url.Values, info *jetstream.StreamInfo) (f messageFilter, err error) {
	f = messageFilter{
		subject: strings.TrimSpace(q.Get("subject")), text: q.Get("q"), header: strings.TrimSpace(q.Get("header")), id: strings.TrimSpace(q.Get("id")),
		low: max(1, info.State.FirstSeq), high: info.State.LastSeq, info: info,
	}
	since, until, err := times(q)
	if err == nil && !since.IsZero() {
		f.low, err = m.after(ctx, info, since)
	}
	if err == nil && !until.IsZero() {
		f.high, err = m.after(ctx, info, until)
		f.high--
	}
	return f, err
}

// messages lists the messages of a stream that match, newest first, from a sequence on downwards. Without one it begins with the newest, and is live.
func (m *Messages) messages(ctx context.Context, r Request) (*view.Page, error) {
	q := r.Query
	name := q.Get("stream")
	info, err := m.source.Stream(ctx, name)
	if err != nil {
		return nil, streamError(name, err)
	}
	f, err := m.filter(ctx, q, info)
	if err != nil {
		return nil, err
	}
	from, err := parseSequence(q.Get("seq"))
	if err != nil {
		return nil, err
	}
	if from == 0 || from > f.high {
		from = f.high
	}
	open := r.Payloads && systems.OfStream(name, info.Config.Subjects) == ""
	if f.reads() && !open {
		return nil, &Problem{Status: http.StatusForbidden, Text: noPayload, Fix: "Search by subject and time."}
	}
	look := search{source: m.source, info: info, subject: f.subject, low: f.low, most: maxScanned, atOnce: messageRows + 1}
	if f.reads() {
		look.atOnce = letterWindow
	}
	if q.Has("download") && open {
		return export(ctx, look, &f, from)
	}
	found, next, looked, err := look.find(ctx, from, messageRows, f.fits)
	part := view.Part{ID: "messages", Source: view.Source{Name: "NATS", Asked: r.Now}}
	if err != nil {
		part.Problem, part.ProblemTone = "The list ends early, since the server did not answer in time: "+err.Error(), view.Warn
	}
	list := &view.List{
		Path: "messages", Query: q, Found: m.found(ctx, info, &f),
		Empty:   "No message matches. The list shows stored messages; `nats publish` or `jetpull publish` adds some.",
		Columns: view.Columns{}.Numbers("Sequence", "Stored").Texts("Subject").Numbers("Headers", "Size").Wide("Payload"),
	}
	if next > 0 {
		list.Next = with(q, "seq", strconv.FormatUint(next, 10))
	}
	if f.reads() {
		list.Found = searched(found, looked, next)
		if len(found) == 0 && next > 0 {
			list.Empty = "None of these messages matches. Next looks further."
		}
	}
	list.Previous = m.newer(ctx, &look, &f, q, from)
	list.Links = m.ways(ctx, q, &f, info, found, open)
	for _, one := range found {
		seq := strconv.FormatUint(one.Sequence, 10)
		list.Add("m-"+seq,
			view.Linked(seq, link("message", "stream", name, "seq", seq)), view.Ago(one.Time, ""), view.Text(one.Subject),
			view.Int(one.headers), view.Bytes(uint64(one.size)), r.of(info, one.RawStreamMsg).glimpse(one.Data))
	}
	part.List = list
	return &view.Page{
		Nav: "streams", Title: name, Crumbs: []view.Link{{Text: "Messages", Href: "streams"}, {Text: "Stream", Href: link("stream", "name", name)}},
		Static: q.Get("seq") != "" || f.high < info.State.LastSeq || f.reads(),
		Filter: messageFields(q, name, open), Parts: []view.Part{part},
	}, nil
}

func messageFields(q url.Values, stream string, open bool) *view.Filter {
	fields := []view.Field{
		{Name: "stream", Value: stream, Hidden: true},
		searchField(q, "subject", "Subject", "orders.*"),
		{Name: "seq", Label: "Up to sequence", Value: q.Get("seq"), Type: "number", Placeholder: "newest"},
	}
	fields = append(fields, timeFields(q, "Since", "Until")...)
	if open {
		fields = append(fields,
			searchField(q, "q", "Payload has", "part of the payload"),
			entry(q, "header", "Header has", "X-Tenant: acme"),
			entry(q, "id", "Nats-Msg-Id", ""))
	}
	return &view.Filter{Path: "messages", Fields: fields}
}

// found states how many messages the server selects.
func (m *Messages) found(ctx context.Context, info *jetstream.StreamInfo, f *messageFilter) string {
	st := info.State
	if f.subject == "" && f.low <= max(1, st.FirstSeq) && f.high == st.LastSeq {
		return fmt.Sprintf("%s in the stream, sequences %d to %d", view.Count(st.Msgs, "message"), st.FirstSeq, st.LastSeq)
	}
	from, err := m.source.Count(ctx, info, f.low, f.subject)
	if err != nil {
		return "How many messages match is not known now"
	}
	if f.high < st.LastSeq {
		after, err := m.source.Count(ctx, info, f.high+1, f.subject)
		if err != nil {
			return "How many messages match is not known now"
		}
		from -= min(from, after)
	}
	if from == 1 {
		return "1 message matches"
	}
	return view.Count(from, "message") + " match"
}

// searched states how far a search has looked.
func searched(found []brief, looked int, next uint64) string {
	text := view.Count(uint64(len(found)), "message") + " shown; looked at " + view.Count(uint64(looked), "message")
	if next > 0 {
		return text + ", down to sequence " + strconv.FormatUint(next+1, 10)
	}
	return text + ", down to the first"
}

// newer is the query of the page with the messages above a sequence; nil: there is none.
func (m *Messages) newer(ctx context.Context, look *search, f *messageFilter, q url.Values, above uint64) url.Values {
	last, n, begun := uint64(0), 0, time.Now()
	for at, looked := above+1, 0; at <= f.high && n <= messageRows && looked < maxScanned && time.Since(begun) < scanTime && ctx.Err() == nil; {
		some, err := m.source.Messages(ctx, look.info, at, cmp.Or(f.subject, ">"), look.atOnce)
		if err != nil || len(some) == 0 {
			break
		}
		for _, one := range some {
			if looked++; one.Sequence > f.high || n > messageRows || !f.fits(one) {
				continue
			}
			if n++; n <= messageRows {
				last = one.Sequence
			}
		}
		at = some[len(some)-1].Sequence + 1
	}
	switch {
	case n == 0:
		return nil
	case n <= messageRows:
		return with(q, "seq", "")
	}
	return with(q, "seq", strconv.FormatUint(last, 10))
}

// ways lead to the begin and the end of the list, and out of it.
func (m *Messages) ways(ctx context.Context, q url.Values, f *messageFilter, info *jetstream.StreamInfo, found []brief,
	open bool,
) (all []view.Link) {
	to := func(text, name, value string) {
		all = append(all, view.Link{Text: text, Href: "messages?" + with(q, name, value).Encode()})
	}
	switch {
	case q.Get("seq") != "":
		to("Newest, live", "seq", "")
	case len(found) > 0:
		to("Pause", "seq", strconv.FormatUint(found[0].Sequence, 10))
	}
	if first, err := m.source.Messages(ctx, info, f.low, cmp.Or(f.subject, ">"), messageRows); err == nil && len(first) > 0 && !f.reads() {
		to("Oldest", "seq", strconv.FormatUint(first[len(first)-1].Sequence, 10))
	}
	if open && len(found) > 0 {
		to("Export as JSON lines", "download", "1")
	}
	return all
}

// maxExport bounds the payloads of an export, in bytes.
const maxExport = 16 << 20

// export is a file with a line of JSON for each message that matches, up to a bound. If there are more, the last line has the sequence to go on at.
func export(ctx context.Context, look search, f *messageFilter, from uint64) (*view.Page, error) {
	var b bytes.Buffer
	lines := json.NewEncoder(&b)
	next, _, err := look.back(ctx, from, func(one *jetstream.RawStreamMsg) bool {
		if b.Len() > maxExport {
			return false
		}
		if !f.fits(one) || ofSystem(look.info, one) != "" {
			return true
		}
		line := map[string]any{"sequence": one.Sequence, "time": one.Time, "subject": one.Subject, "headers": one.Header, "data": string(one.Data)}
		if !utf8.Valid(one.Data) {
			line["data"], line["data_base64"] = nil, one.Data
		}
		return lines.Encode(line) == nil
	})
	if err != nil {
		return nil, streamError(look.info.Config.Name, err)
	}
	if next > 0 {
		_ = lines.Encode(map[string]any{"more_from_sequence": next}) // a buffer takes all that is written
	}
	return &view.Page{Download: &view.Download{Name: look.info.Config.Name + ".jsonl", Data: b.Bytes()}}, nil
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

func streamError(name string, err error) error {
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound), errors.Is(err, jetstream.ErrInvalidStreamName), errors.Is(err, jetstream.ErrStreamNameRequired):
		return notFound("The list of streams shows all that there are.", "There is no stream %q.", name)
	case errors.Is(err, jetstream.ErrMsgNotFound):
		return notFound("It was acknowledged, deleted, or removed by the stream's limits.", "The stream %s does not have this message any more.", name)
	}
	return unavailable(err, "Try again. If it stays so, look at the server.", "NATS does not answer for stream %s", name)
}
