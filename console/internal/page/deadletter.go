package page

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/console/internal/view"
)

// one shows all that is known of a dead letter.
func (d *DeadLetters) one(ctx context.Context, r Request) (*view.Page, error) {
	stream := r.Query.Get("stream")
	seq, err := parseSequence(r.Query.Get("seq"))
	if err != nil {
		return nil, err
	}
	m, err := d.source.Message(ctx, stream, seq)
	if err != nil {
		return nil, streamError(stream, err)
	}
	if r.Query.Has("download") {
		return download(stream+"-"+strconv.FormatUint(seq, 10), m.Data)
	}
	h := m.Header
	if !isDeadLetter(m) {
		return nil, notFound("Look at it as a message of its stream.", "Message %d of stream %s is no dead letter.", seq, stream)
	}
	origin := h.Get(jetpull.HeaderDeadStream)
	part := view.Part{
		ID: "deadletter", Source: view.Source{Name: "NATS", Asked: r.Now},
		Problem: cmp.Or(h.Get(jetpull.HeaderDeadReason), "No reason is stated."), ProblemTone: view.Bad,
		Facts: []view.Fact{
			{Name: "Given up", Value: view.Ago(m.Time, "")},
			{Name: "Attempts", Value: view.Text(h.Get(jetpull.HeaderDeadAttempts))},
			{Name: "Subject", Value: view.Text(h.Get(jetpull.HeaderDeadSubject))},
			{Name: "Original", Value: view.Linked(origin+" "+h.Get(jetpull.HeaderDeadSequence), link("message", "stream", origin, "seq", h.Get(jetpull.HeaderDeadSequence)))},
			{Name: "Consumer", Value: view.Linked(h.Get(jetpull.HeaderDeadConsumer), link("consumer", "stream", origin, "name", h.Get(jetpull.HeaderDeadConsumer)))},
			{Name: "Size", Value: view.Bytes(uint64(len(m.Data)))},
		},
		Texts:   []view.Block{payloadBlock(m.Data, r.Query, "deadletter", "stream", stream, "seq", strconv.FormatUint(seq, 10))},
		Actions: d.oneActions(stream, m),
	}
	return &view.Page{
		Nav: "deadletters", Title: fmt.Sprintf("Dead letter %d", seq), Static: true,
		Crumbs: []view.Link{{Text: "Dead letters", Href: "deadletters"}, {Text: stream, Href: link("deadletters", "stream", stream)}},
		Parts:  []view.Part{part, headersPart(h)},
	}, nil
}

func (d *DeadLetters) oneActions(stream string, m *jetstream.RawStreamMsg) []view.Action {
	target := fmt.Sprintf("%s/%d", stream, m.Sequence)
	back := link("deadletters", "stream", stream)
	return []view.Action{
		{
			Name: "requeue", Label: "Requeue", Target: target,
			Fields: []view.Field{{Name: "subject", Label: "To subject", Value: m.Header.Get(jetpull.HeaderDeadSubject)}},
			Do: func(ctx context.Context, form url.Values) (view.Outcome, error) {
				to, err := requeue(ctx, d.source, stream, m, strings.TrimSpace(form.Get("subject")))
				if err != nil {
					return view.Outcome{}, &Problem{Status: http.StatusBadGateway, Text: "The dead letter was not requeued, and stays here", Err: err, Fix: "A stream must take its subject. Correct that, or give another subject."}
				}
				return view.Outcome{Count: 1, Text: "Requeued: " + to + ". The dead letter is deleted.", Then: back}, nil
			},
		},
		{
			Name: "purge", Label: "Purge", Target: target, Danger: true,
			Confirm: fmt.Sprintf("Delete dead letter %d of stream %s with its payload. This cannot be undone.", m.Sequence, stream),
			Do: func(ctx context.Context, _ url.Values) (view.Outcome, error) {
				if err := d.source.DeleteMessage(ctx, stream, m.Sequence); err != nil {
					return view.Outcome{}, streamError(stream, err)
				}
				return view.Outcome{Count: 1, Text: fmt.Sprintf("Deleted dead letter %d.", m.Sequence), Then: back}, nil
			},
		},
	}
}

// requeue publishes the message of a dead letter, and deletes the dead letter when a stream has confirmed it. The message has an ID that
// is made of the dead letter's, so that one which is requeued twice within the stream's duplicate window is stored once.
func requeue(ctx context.Context, source MessageSource, stream string, m *jetstream.RawStreamMsg, to string) (string, error) {
	if m.Header.Get(jetpull.HeaderDeadPayload) != "" {
		return "", fmt.Errorf("its payload was left out when it was given up (%s)", m.Header.Get(jetpull.HeaderDeadPayload))
	}
	to = cmp.Or(to, m.Header.Get(jetpull.HeaderDeadSubject))
	own := nats.Header{}
	for key, values := range ownHeaders(m.Header) {
		if !strings.HasPrefix(key, "Dead-Letter-") {
			own[key] = values
		}
	}
	id := fmt.Sprintf("requeue:%s:%d:%d", stream, m.Sequence, m.Time.UnixNano())
	stored, seq, err := source.Publish(ctx, &nats.Msg{Subject: to, Header: own, Data: m.Data}, id)
	if err != nil {
		return "", fmt.Errorf("publish to %s: %w", to, err)
	}
	if err := source.DeleteMessage(ctx, stream, m.Sequence); err != nil {
		return "", fmt.Errorf("it was published to %s, but not deleted here: %w", to, err)
	}
	return fmt.Sprintf("stream %s has it as message %d", stored, seq), nil
}

// The kinds of operations on dead letters.
const (
	kindRequeue = "requeue dead letters"
	kindPurge   = "purge dead letters"
)

// addKinds adds the operations on dead letters to the runner.
func (d *DeadLetters) addKinds() {
	d.runner.add(kindRequeue, letterWindow, d.selector(func(ctx context.Context, f letterFilter, m *jetstream.RawStreamMsg) error {
		_, err := requeue(ctx, d.source, f.Stream, m, f.Subject)
		return err
	}))
	d.runner.add(kindPurge, letterWindow, d.selector(func(ctx context.Context, f letterFilter, m *jetstream.RawStreamMsg) error {
		return d.source.DeleteMessage(ctx, f.Stream, m.Sequence)
	}))
}

// count is how many dead letters match. It stops at maxScanned, with more.
func (d *DeadLetters) count(ctx context.Context, f letterFilter) (n int, more bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, scanTime)
	defer cancel()
	info, err := d.source.Stream(ctx, f.Stream)
	if err != nil {
		return 0, false, err
	}
	for from := max(1, info.State.FirstSeq); from <= f.Last; {
		found, err := d.source.Messages(ctx, info, from, ">", letterWindow)
		if err != nil {
			return n, true, errIfNone(n, err)
		}
		if len(found) == 0 {
			break
		}
		for _, m := range found {
			if m.Sequence <= f.Last && f.fits(m) {
				if n++; n == maxScanned {
					return n, true, nil
				}
			}
		}
		from = found[len(found)-1].Sequence + 1
	}
	return n, false, nil
}

// errIfNone passes on an error that ended a count before it found anything.
func errIfNone(n int, err error) error {
	if n > 0 {
		return nil
	}
	return err
}

// selector selects the dead letters of an operation, and has do done to each.
func (d *DeadLetters) selector(do func(context.Context, letterFilter, *jetstream.RawStreamMsg) error) selector {
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
		for _, m := range found {
			if m.Sequence > f.Last {
				return all, 0, nil
			}
			if f.fits(m) {
				all = append(all, func(ctx context.Context) error { return do(ctx, f, m) })
			}
		}
		return all, found[len(found)-1].Sequence + 1, nil
	}
}
