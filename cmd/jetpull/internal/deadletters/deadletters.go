// Package deadletters reads, requeues and deletes dead letters that Consume has stored in a stream.
package deadletters

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/internal/wire"
)

// Letter is a dead letter.
type Letter struct {
	Sequence uint64      `json:"seq"`  // in the stream of dead letters
	Time     time.Time   `json:"time"` // when it was stored
	Subject  string      `json:"subject"`
	Stream   string      `json:"stream"`
	Origin   uint64      `json:"stream_seq"` // in that stream
	Consumer string      `json:"consumer"`
	Attempts int         `json:"attempts"`
	Reason   string      `json:"reason"`
	Gone     bool        `json:"payload_gone,omitempty"`
	Size     int         `json:"size"`
	Headers  nats.Header `json:"headers,omitempty"` // those that the message had
	Data     []byte      `json:"data,omitempty"`
	Text     string      `json:"text,omitempty"` // Data, if that is UTF-8
}

// Filter says which dead letters are meant: those that all of its fields fit.
type Filter struct {
	Sequences []uint64       // empty: all
	Reason    *regexp.Regexp // of the reason; nil: any
	Subject   string         // that the message was published to, wildcards allowed; empty: any
	Since     time.Time      // when the dead letter was stored; zero: ever
	Heads     bool           // read them without headers and payload
}

func (f *Filter) fits(l *Letter) bool {
	return (len(f.Sequences) == 0 || slices.Contains(f.Sequences, l.Sequence)) && (f.Reason == nil || f.Reason.MatchString(l.Reason)) && (f.Subject == "" || wire.Matches(f.Subject, l.Subject)) && !l.Time.Before(f.Since)
}

// All are the dead letters in stream that fit, in the order of their sequences. Messages that are no dead letters are passed over.
func All(ctx context.Context, stream jetstream.Stream, f *Filter) iter.Seq2[*Letter, error] {
	return func(yield func(*Letter, error) bool) {
		if err := each(ctx, stream, f, func(l *Letter) bool { return yield(l, nil) }); err != nil {
			yield(nil, err)
		}
	}
}

// each calls do with each dead letter that fits, until that returns false.
func each(ctx context.Context, stream jetstream.Stream, f *Filter, do func(*Letter) bool) error {
	info, err := stream.Info(ctx)
	if err != nil {
		return err
	}
	last := info.State.LastSeq
	if info.State.Msgs == 0 {
		return nil
	}
	reader, err := stream.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{})
	if err != nil {
		return err
	}
	messages, err := reader.Messages()
	if err != nil {
		return err
	}
	defer messages.Stop()
	for {
		m, err := messages.Next(jetstream.NextContext(ctx))
		if err != nil {
			return err
		}
		meta, err := m.Metadata()
		if err != nil {
			return err
		}
		l := letter(m, meta)
		if l != nil && f.Heads {
			l.Headers, l.Data, l.Text = nil, nil, ""
		}
		if l != nil && f.fits(l) && !do(l) {
			return nil
		}
		if meta.NumPending == 0 || meta.Sequence.Stream >= last { // what was stored meanwhile is for the next time
			return nil
		}
	}
}

// letter reads a dead letter; nil: the message is none.
func letter(m jetstream.Msg, meta *jetstream.MsgMetadata) *Letter {
	h := m.Headers()
	if h.Get(jetpull.HeaderDeadSubject) == "" {
		return nil
	}
	origin, _ := strconv.ParseUint(h.Get(jetpull.HeaderDeadSequence), 10, 64)
	attempts, _ := strconv.Atoi(h.Get(jetpull.HeaderDeadAttempts))
	own := maps.Clone(h)
	maps.DeleteFunc(own, func(key string, _ []string) bool {
		return strings.HasPrefix(key, "Dead-Letter-") || strings.HasPrefix(key, "Nats-")
	})
	l := &Letter{
		Sequence: meta.Sequence.Stream, Time: meta.Timestamp.UTC(), Subject: h.Get(jetpull.HeaderDeadSubject),
		Stream: h.Get(jetpull.HeaderDeadStream), Origin: origin, Consumer: h.Get(jetpull.HeaderDeadConsumer),
		Attempts: attempts, Reason: h.Get(jetpull.HeaderDeadReason), Gone: h.Get(jetpull.HeaderDeadPayload) != "",
		Size: len(m.Data()), Headers: own, Data: m.Data(),
	}
	if utf8.Valid(l.Data) {
		l.Text = string(l.Data)
	}
	return l
}

// ErrNoStream ends a requeue to a subject that no stream has.
var ErrNoStream = errors.New("no stream has this subject; create one that has it, or give another subject with --to")

// Requeue sends the message of a dead letter again, to the subject that it had or to another one. The returned function waits until a stream has
// confirmed it, and then deletes the dead letter. Calls one after the other send in their order, whenever the functions are called. The message
// has an ID of the dead letter's, so that one which is requeued twice within the stream's duplicate window is stored once.
//
// Messages are not sent in atomic batches (ADR-50). A batch needs the stream's permission and is for one stream. The server refuses it if one of
// its messages is stored already, as after an interrupt. It cannot delete the dead letters, which takes longer than the publishing. Batches of 100,
// one after the other, were 1.6 to 4.3 times slower.
func Requeue(js jetstream.JetStream, stream jetstream.Stream, l *Letter, to string) (finish func(context.Context) error) {
	if l.Gone {
		return func(context.Context) error {
			return fmt.Errorf("dead letter %d: its payload was gone from the stream when it was given up", l.Sequence)
		}
	}
	to = cmp.Or(to, l.Subject)
	m := &nats.Msg{Subject: to, Header: l.Headers, Data: l.Data}
	id := fmt.Sprintf("requeue:%s:%d:%d", stream.CachedInfo().Config.Name, l.Sequence, l.Time.UnixNano())
	sent, err := js.PublishMsgAsync(m, jetstream.WithMsgID(id))
	return func(ctx context.Context) error {
		if err == nil {
			err = confirmed(ctx, js, sent, to)
		}
		if err != nil {
			return fmt.Errorf("dead letter %d: publish to %s: %w", l.Sequence, to, err)
		}
		return Delete(ctx, stream, l)
	}
}

// confirmed waits until a stream has confirmed what was sent to a subject.
func confirmed(ctx context.Context, js jetstream.JetStream, sent jetstream.PubAckFuture, to string) (err error) {
	select {
	case <-sent.Ok():
		return nil
	case err = <-sent.Err():
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	noStream := errors.Is(err, jetstream.ErrNoStreamResponse)
	if errors.Is(err, context.DeadlineExceeded) {
		// A subscriber that answers nothing keeps the server from reporting that no stream has the subject.
		_, missing := js.StreamNameBySubject(context.WithoutCancel(ctx), to)
		noStream = errors.Is(missing, jetstream.ErrStreamNotFound)
	}
	if noStream {
		return ErrNoStream
	}
	return err
}

// Delete deletes a dead letter.
func Delete(ctx context.Context, stream jetstream.Stream, l *Letter) error {
	if err := stream.DeleteMsg(ctx, l.Sequence); err != nil && !errors.Is(err, jetstream.ErrMsgNotFound) {
		return fmt.Errorf("dead letter %d: delete: %w", l.Sequence, err)
	}
	return nil
}
