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
	"slices"
	"sort"
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

// MessageSource reads the messages of streams. It never creates a consumer, so it takes no message from a worker.
type MessageSource interface {
	Streams(ctx context.Context) ([]*jetstream.StreamInfo, error)
	Stream(ctx context.Context, name string) (*jetstream.StreamInfo, error)
	// Messages returns up to n messages at or after a sequence whose subjects match. After an error, it also returns the messages read before.
	Messages(ctx context.Context, stream *jetstream.StreamInfo, from uint64, subject string, n int) ([]*jetstream.RawStreamMsg, error)
	Message(ctx context.Context, stream string, seq uint64) (*jetstream.RawStreamMsg, error)
	// Count returns the number of messages at or after a sequence whose subjects match. An empty subject matches all.
	Count(ctx context.Context, stream *jetstream.StreamInfo, from uint64, subject string) (uint64, error)
	// PublishMsg is like that of a [jetstream.JetStream].
	PublishMsg(ctx context.Context, m *nats.Msg, opts ...jetstream.PublishOpt) (*jetstream.PubAck, error)
	// Subjects returns the number of messages of each subject that matches a filter.
	Subjects(ctx context.Context, stream, filter string) (map[string]uint64, error)
	// Inbox returns the prefix of the connection's inboxes.
	Inbox() string
	// DeleteMessage deletes a message. It returns nil if the message is already gone.
	DeleteMessage(ctx context.Context, stream string, seq uint64) error
}

// Messages has the pages of the streams and their messages.
type Messages struct {
	Family
	source    MessageSource
	latest    *sample.Latest[[]judgedStream]
	consumers *Consumers
	letters   *DeadLetters
	history   *sample.History
	before    map[string]judgedStream // only the sampler's goroutine uses it
}

// NewMessages returns the pages. The sampler asks their source. The page of a message shows what its consumers have done with it.
func NewMessages(s *sample.Sampler, source MessageSource, consumers *Consumers, letters *DeadLetters) *Messages {
	m := &Messages{source: source, consumers: consumers, letters: letters, history: s.History("streams", streamWidth)}
	m.Family = Family{"Messages", "streams", map[string]Func{
		"streams": m.streams, "stream": m.stream, "messages": m.messages, "message": m.message,
	}}
	m.latest = sample.Add(s, m.ask)
	consumers.internal = m.internal
	return m
}

// messageRows is the number of messages on a page of a list.
const messageRows = 25

// search returns the search for a query. reads reports whether it must read payloads or headers. The server selects by subject and sequence.
func (m *Messages) search(ctx context.Context, q url.Values, info *jetstream.StreamInfo) (look search, reads bool, err error) {
	text, header, id := q.Get("q"), strings.TrimSpace(q.Get("header")), strings.TrimSpace(q.Get("id"))
	look = search{
		source: m.source, info: info, subject: strings.TrimSpace(q.Get("subject")), low: max(1, info.State.FirstSeq), high: info.State.LastSeq,
		most: maxScanned, atOnce: messageRows + 1, fits: func(*jetstream.RawStreamMsg) bool { return true },
	}
	if text+header+id != "" {
		reads, look.atOnce = true, letterWindow
		look.fits = func(one *jetstream.RawStreamMsg) bool {
			// A search must not reveal a payload that nobody may see.
			return (id == "" || one.Header.Get(jetstream.MsgIDHeader) == id) && bytes.Contains(one.Data, []byte(text)) && ofSystem(info, one) == "" &&
				hasHeader(one.Header, header)
		}
	}
	since, until, err := times(q)
	if err == nil && !since.IsZero() {
		look.low, err = m.after(ctx, info, since)
	}
	if err == nil && !until.IsZero() {
		look.high, err = m.after(ctx, info, until)
		look.high--
	}
	return look, reads, cmp.Or(err, look.begin(q))
}

func hasHeader(h nats.Header, text string) bool {
	for name, values := range h {
		if slices.ContainsFunc(values, func(value string) bool { return contains(text, name+": "+value) }) {
			return true
		}
	}
	return text == ""
}

// messages lists matching messages of a stream, newest first, from a sequence down. Without a sequence it starts with the newest, and is live.
func (m *Messages) messages(ctx context.Context, r Request) (*view.Page, error) {
	q := r.Query
	name := q.Get("stream")
	info, err := m.source.Stream(ctx, name)
	if err != nil {
		return nil, streamError(name, err)
	}
	look, reads, err := m.search(ctx, q, info)
	if err != nil {
		return nil, err
	}
	open := r.Payloads && systems.OfStream(name, info.Config.Subjects) == ""
	if reads && !open {
		return nil, &Problem{Status: http.StatusForbidden, Text: inSentence("no payload", nil), Fix: "Search by subject and time."}
	}
	if q.Has("download") && open {
		return export(ctx, look)
	}
	part, found, looked, next := look.list(ctx, r, "messages", "message", messageRows)
	list := part.List
	list.Columns = view.Columns(">Sequence", ">Stored", "Subject", ">Headers", ">Size", "*Payload")
	if reads {
		list.Found = inSentence("searched", map[string]any{"Found": len(found), "Looked": looked, "Next": next, "From": next + 1})
	} else {
		list.Found = m.found(ctx, look)
		list.Empty += " The list shows stored messages. The commands nats publish and jetpull publish add some."
	}
	to := func(text, name, value string) {
		list.Links = append(list.Links, view.Link{Text: text, Href: list.To(with(q, name, value))})
	}
	switch {
	case q.Get("seq") != "":
		to("Newest, live", "seq", "")
	case len(found) > 0:
		to("Pause", "seq", strconv.FormatUint(found[0].Sequence, 10))
	}
	if open && len(found) > 0 {
		to("Export as JSON lines", "download", "1")
	}
	for _, one := range found {
		list.Add(fmt.Sprint("m-", one.Sequence), messageLink(name, one.Sequence), view.Ago(one.Time, ""), view.Text(one.Subject),
			view.Int(one.headers), view.Bytes(uint64(one.size)), r.of(info, one.RawStreamMsg).glimpse(one.Data))
	}
	fields := append([]view.Field{
		hidden(q, "stream"),
		searchField(q, "subject", "Subject", "orders.*"),
		{Name: "seq", Label: "Up to sequence", Value: q.Get("seq"), Type: "number", Placeholder: "newest"},
	}, timeFields(q, "Since", "Until")...)
	if open {
		fields = append(fields,
			searchField(q, "q", "Payload has", "part of the payload"),
			entry(q, "header", "Header has", "X-Tenant: acme"),
			entry(q, "id", "Nats-Msg-Id", ""))
	}
	return &view.Page{
		Nav: "streams", Title: name, Crumbs: []view.Link{{Text: "Messages", Href: "streams"}, {Text: "Stream", Href: link("stream", "name", name)}},
		Static: q.Get("seq") != "" || look.high < info.State.LastSeq || reads,
		Filter: fields, Parts: []view.Part{part},
	}, nil
}

// messageLink returns a link to a message. Sequence 0 means that there is none.
func messageLink(stream string, seq uint64) view.Value {
	if seq == 0 {
		return view.None("There is no message")
	}
	return view.Linked(strconv.FormatUint(seq, 10), link("message", "stream", stream, "seq", strconv.FormatUint(seq, 10)))
}

// found describes how many messages the server selects.
func (m *Messages) found(ctx context.Context, look search) string {
	st := look.info.State
	if look.subject == "" && look.low <= max(1, st.FirstSeq) && look.high == st.LastSeq {
		return fmt.Sprintf("%s in the stream, sequences %d to %d", view.Count(st.Msgs, "message"), st.FirstSeq, st.LastSeq)
	}
	n, err := m.source.Count(ctx, look.info, look.low, look.subject)
	if err == nil && look.high < st.LastSeq {
		var after uint64
		after, err = m.source.Count(ctx, look.info, look.high+1, look.subject)
		n -= min(n, after)
	}
	return inSentence("matches", map[string]any{"N": n, "Err": err})
}

// maxExport is the maximum size of the payloads in an export, in bytes.
const maxExport = 16 << 20

// export returns a file with a line of JSON per matching message, up to a limit. If there are more, the last line has the sequence to continue at.
func export(ctx context.Context, look search) (*view.Page, error) {
	var b bytes.Buffer
	lines := json.NewEncoder(&b)
	next, _, err := look.back(ctx, look.from, func(one *jetstream.RawStreamMsg) bool {
		if b.Len() > maxExport {
			return false
		}
		if !look.fits(one) || ofSystem(look.info, one) != "" {
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
		_ = lines.Encode(map[string]any{"more_from_sequence": next}) // writing to a buffer cannot fail
	}
	return &view.Page{Download: &view.Download{Name: look.info.Config.Name + ".jsonl", Data: b.Bytes()}}, nil
}

// after finds the first message that was stored at or after a time. It makes one request per bit of the sequence.
func (m *Messages) after(ctx context.Context, info *jetstream.StreamInfo, at time.Time) (seq uint64, err error) {
	low := max(1, info.State.FirstSeq)
	n := sort.Search(int(info.State.LastSeq+1-low), func(i int) bool {
		found, failed := m.source.Messages(ctx, info, low+uint64(i), ">", 1)
		err = cmp.Or(err, failed)
		return err != nil || len(found) == 0 || !found[0].Time.Before(at)
	})
	if err != nil {
		err = streamError(info.Config.Name, err)
	}
	return low + uint64(n), err
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
