package work

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.opentelemetry.io/otel/trace"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/internal/service/spans"
	"github.com/jetpull/jetpull/relay/internal/machine"
	"github.com/jetpull/jetpull/relay/internal/store"
)

// The headers of a message that is published to the relay over NATS.
const (
	HeaderMessageID = "Relay-Message-Id"
	HeaderReceiver  = "Relay-Receiver"
)

// MaxID is the maximum length of a source or message ID, in bytes.
const MaxID = 256

// Offer is a message from a sender. Its JSON is the body of a request.
type Offer struct {
	Source   string            `json:"source_id"`
	ID       string            `json:"message_id"`
	Receiver string            `json:"receiver"`
	Payload  json.RawMessage   `json:"payload"`
	Headers  map[string]string `json:"headers"`
	Sender   string            `json:"-"` // "": no sender owns the source
	Trace    string            `json:"-"`
}

// Outcome is the result of a submitted message.
type Outcome string

// The outcomes.
const (
	Accepted  Outcome = "accepted"
	Duplicate Outcome = "duplicate"
	Conflict  Outcome = "conflict"
)

// CheckID returns the reason why an ID is not valid, or nil.
func CheckID(what, id string) error {
	switch {
	case id == "":
		return fmt.Errorf("%s is empty", what)
	case id == "." || id == "..":
		// In a path, the receiver or a proxy in front of it would take it for a directory, even in its escaped form.
		return fmt.Errorf("%s is %q, which cannot be a part of a URL: give another", what, id)
	case len(id) > MaxID:
		return fmt.Errorf("%s has %d bytes: %d are the most", what, len(id), MaxID)
	case !utf8.ValidString(id):
		return fmt.Errorf("%s is not UTF-8: %q", what, id)
	case strings.ContainsRune(id, utf8.RuneError):
		// A JSON decoder replaces each half of a surrogate pair with it, so that different IDs would become the same.
		return fmt.Errorf("%s has the replacement character U+FFFD, which stands for what is no Unicode: %q", what, id)
	}
	return nil
}

// hash distinguishes a duplicate from another message with the same ID. It ignores the white space of JSON.
func hash(receiver string, payload []byte) string {
	var compact bytes.Buffer
	if json.Compact(&compact, payload) == nil {
		payload = compact.Bytes()
	}
	h := sha256.New()
	_, _ = fmt.Fprintf(h, "%d:%s:", len(receiver), receiver)
	h.Write(payload)
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// ingest accepts messages from senders.
type ingest struct{ *core }

// Intake is a message that is being accepted. First its record is created, which decides whether it is new. Then its entry for the receiver is
// stored, with the payload. The sender gets its answer after both. If the relay dies in between, the sender sends again.
type Intake struct {
	store.Entry // for a duplicate, it has the stored record
	Outcome     Outcome
	Err         error // if set, it is unknown whether the message is stored

	created func(context.Context) (store.Versioned, error)
	stored  func(context.Context) (seq uint64, err error) // waits for its entry; nil: it needs none
	entry   uint64                                        // the entry's sequence; 0: it needs none, or had one on disk
	end     func(error)                                   // ends its span
}

// Submit stores messages from senders, in order. It stores the messages of a call together, which takes little longer than storing one.
func (w *ingest) Submit(ctx context.Context, offers []Offer) []*Intake {
	// If the sender goes away, the record must still get its entry. The store bounds each wait.
	ctx = context.WithoutCancel(ctx)
	all := make([]*Intake, len(offers))
	for i, o := range offers {
		all[i] = w.create(ctx, o, w.store.Now(), trace.SpanKindProducer)
	}
	for _, in := range all {
		w.route(ctx, in)
	}
	w.finish(ctx, all...)
	return all
}

// fromSender is the FromSender worker of one partition: it drops duplicates, creates the record of a message, and enqueues the message for its
// receiver.
func (w *ingest) fromSender(partition int) worker {
	worker := w.newWorker(store.FromSender, fmt.Sprintf("from_sender_%d", partition), w.store.PartitionFilter(partition), true)
	worker.opts = append(worker.opts, jetpull.OrderedBy(func(m *jetpull.Msg) string { return m.Subject() }))
	worker.handle = func(ctx context.Context, m *jetpull.Msg, meta *jetstream.MsgMetadata) error {
		o, err := parseOffer(m.Subject(), m.Headers(), m.Data())
		if most := w.store.MaxPayload(); err == nil && len(o.Payload) > most {
			err = fmt.Errorf("the payload has %d bytes: %d are the most", len(o.Payload), most)
		}
		if err != nil {
			w.Metrics.ingest.WithLabelValues("malformed").Inc()
			w.cfg.Reporter.Report(ctx, fmt.Errorf("a message that was published cannot be read: %w", err), "subject", m.Subject())
			return w.store.Quarantine(ctx, m.Subject(), meta.Sequence.Stream, m.Data(), err)
		}
		source := m.Subject()
		if r := w.store.Receivers.Get(o.Receiver); !r.Gone() && !ordered(r.Order) {
			source = ""
		}
		return w.inOrder(ctx, m, store.FromSender, source, func() error {
			o.Sender = w.store.OwnerOf(o.Source)
			in := w.create(ctx, o, meta.Timestamp, trace.SpanKindConsumer)
			w.route(ctx, in)
			w.finish(ctx, in)
			return in.Err
		})
	}
	return worker
}

// parseOffer decodes a message of the stream from_sender. The last tokens of the subject are partition and source. The permissions of the NATS server
// depend on the subject, so only the subject determines the source, which determines the sender.
func parseOffer(subject string, h nats.Header, payload []byte) (Offer, error) {
	_, rest, _ := strings.Cut(subject, "."+string(store.FromSender)+".")
	_, source, _ := strings.Cut(rest, ".")
	if decoded, err := url.PathUnescape(source); err == nil {
		source = decoded
	}
	o := Offer{
		Source: source, ID: h.Get(HeaderMessageID), Receiver: h.Get(HeaderReceiver),
		Trace: cmp.Or(h.Get("traceparent"), h.Get("Traceparent")), Payload: payload,
	}
	return o, errors.Join(CheckID("the source, which is the end of the subject,", o.Source), CheckID("header "+HeaderMessageID, o.ID),
		CheckID("header "+HeaderReceiver, o.Receiver))
}

// create begins to store the record of a message.
func (w *ingest) create(ctx context.Context, o Offer, at time.Time, kind trace.SpanKind) *Intake {
	in := &Intake{}
	_, o.Trace, in.end = spans.BeginMessage(context.Background(), tracer, "message", o.Trace, trace.WithSpanKind(kind),
		about(o.Source, o.ID, o.Receiver))
	in.Entry = store.Entry{Headers: o.Headers, Trace: o.Trace, Payload: o.Payload}
	in.Record = machine.Record{
		Source: o.Source, ID: o.ID, Receiver: o.Receiver, Sender: o.Sender, Hash: hash(o.Receiver, o.Payload),
		Status: machine.Arrived, ArrivedAt: at.UTC(),
	}
	receiver, err := w.store.Receivers.Find(ctx, o.Receiver)
	switch {
	case err != nil:
		in.Err = err
		return in
	case receiver.Gone():
		in.Record, _ = machine.Next(in.Record, machine.Event{
			Kind: machine.GiveUp, Now: w.store.Now(), Stage: machine.FromSender, Reason: machine.UnknownReceiver,
			Error: fmt.Sprintf("no receiver is called %q", o.Receiver), Policy: w.policy(receiver, o.Sender),
		})
	case receiver.TTL > 0:
		in.ExpiresAt = in.ArrivedAt.Add(receiver.TTL)
	}
	w.crashpoint("before-create")
	in.created = w.store.Create(in.Record)
	return in
}

// route waits for the record of a message and begins to enqueue the message for its receiver. It skips a record in a later status: the message is a
// duplicate, or this worker crashed after it had enqueued the message. It enqueues an ARRIVED duplicate only if no entry waits, because a process
// died before the enqueue.
func (w *ingest) route(ctx context.Context, in *Intake) {
	if in.Err != nil {
		return
	}
	err := w.decideNew(ctx, in)
	w.crashpoint("after-create")
	switch {
	case err != nil || in.Outcome == Conflict:
	case in.Status == machine.Failed && in.Failure.Stage == machine.FromSender:
		err = w.follow(ctx, &in.Entry)
	case in.Status == machine.Arrived && in.Attempt == 0:
		if in.Outcome == Duplicate {
			in.entry, err = w.waits(ctx, &in.Record)
		}
		if err == nil && in.entry == 0 {
			in.stored = w.store.Enqueue(store.ToReceiver, &in.Entry)
		}
	}
	in.Err = err
}

// decideNew waits for the record of a message, and sets the outcome. If there was a record already, it takes that one.
func (w *ingest) decideNew(ctx context.Context, in *Intake) (err error) {
	ours := in.Record
	in.Outcome = Accepted
	in.Versioned, err = in.created(ctx)
	if errors.Is(err, store.ErrConflict) {
		in.Versioned, err = w.store.Load(ctx, ours.Source, ours.ID)
		switch {
		case errors.Is(err, store.ErrMalformed):
			// It is unknown whether the record belongs to the same message. A retry would block the source for ever.
			w.cfg.Reporter.Report(ctx, err, "source", ours.Source, "message", ours.ID)
			in.Outcome, err = Conflict, nil
		case err != nil:
		case in.Hash != ours.Hash:
			in.Outcome = Conflict
		default:
			in.Outcome = Duplicate
		}
	}
	if err == nil && in.Outcome == Conflict {
		w.log.Warn("another message under the same ID is dropped", "source", ours.Source, "message", ours.ID)
	}
	return err
}

// finish waits until messages are in their queue, and on disk with their records. This includes duplicates, because another request may still be
// storing the same message.
func (w *ingest) finish(ctx context.Context, all ...*Intake) {
	var record, entry uint64
	for _, in := range all {
		if in.stored != nil {
			in.entry, in.Err = in.stored(ctx)
			w.lanes.wake(store.ToReceiver, in.Receiver) // even if the server has not confirmed the entry, which may be stored
			w.crashpoint("after-route")
		}
		if in.Err == nil && in.Outcome != Conflict {
			record, entry = max(record, in.Revision), max(entry, in.entry)
		}
	}
	var err error
	if record > 0 {
		records := make(chan error, 1)
		go func() { records <- w.store.OnDisk(ctx, record) }()
		err = cmp.Or(w.store.EntryOnDisk(ctx, store.ToReceiver, entry), <-records)
	}
	for _, in := range all {
		in.Err = cmp.Or(in.Err, err)
		if in.end(in.Err); in.Err != nil {
			continue
		}
		w.Metrics.ingest.WithLabelValues(string(in.Outcome)).Inc()
		w.log.Debug("message from a sender", "source", in.Source, "message", in.ID, "receiver", in.Receiver, "outcome", in.Outcome, "trace",
			traceID(in.Trace))
	}
}

// waits returns the sequence of an ARRIVED message's entry in the queue of its receiver, and wakes the lane. It returns 0 if there is no entry.
func (w *core) waits(ctx context.Context, r *machine.Record) (entry uint64, err error) {
	first, err := w.store.First(ctx, store.ToReceiver, w.store.Filter(store.ToReceiver, r.Receiver, r.Source, r.ID))
	if first == nil {
		return 0, err
	}
	w.lanes.wake(store.ToReceiver, r.Receiver)
	return first.Sequence, nil
}
