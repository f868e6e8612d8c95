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
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/nats-io/nats.go"
	"go.opentelemetry.io/otel/trace"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/relay/internal/machine"
	"github.com/jetpull/jetpull/relay/internal/store"
)

// The headers of a message that is published to the relay over NATS.
const (
	HeaderMessageID = "Relay-Message-Id"
	HeaderReceiver  = "Relay-Receiver"
	// headerOffer is on messages that came in over HTTP, with all that a header could not carry as it is.
	headerOffer = "Relay-Offer"
)

// MaxID is the longest source or message ID in bytes.
const MaxID = 256

// Offer is a message from a sender.
type Offer struct {
	Source   string            `json:"source"`
	ID       string            `json:"id"`
	Receiver string            `json:"receiver"`
	Sender   string            `json:"sender,omitempty"`
	Headers  map[string]string `json:"headers,omitempty"`
	Trace    string            `json:"trace,omitempty"`
	Payload  []byte            `json:"-"`
	// Node and Ticket say who waits for the verdict.
	Node   string `json:"node,omitempty"`
	Ticket uint64 `json:"ticket,omitempty"`
}

// CheckID returns why an ID cannot be one, or nil.
func CheckID(what, id string) error {
	switch {
	case id == "":
		return fmt.Errorf("%s is empty", what)
	case len(id) > MaxID:
		return fmt.Errorf("%s has %d bytes: %d are the most", what, len(id), MaxID)
	case !utf8.ValidString(id):
		return fmt.Errorf("%s is not UTF-8: %q", what, id)
	case strings.ContainsRune(id, utf8.RuneError):
		// JSON makes it of each half of a surrogate pair, and so one ID of several.
		return fmt.Errorf("%s has the replacement character U+FFFD, which stands for what is no Unicode: %q", what, id)
	}
	return nil
}

// hash tells a duplicate from another message under the same ID. How JSON is spaced makes no difference.
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

// Submit begins to store a message from a sender, behind those that were submitted before. The verdict says what
// became of it; it is stored when that returns one.
func (w *ingest) Submit(o Offer) (verdict func(context.Context) (Verdict, error), err error) {
	// From here on, so that those of many messages do not add up.
	late := time.Now().Add(verdictWait)
	endSpan := beginTrace(&o, trace.SpanKindProducer)
	ticket, wait, give := w.verdicts.expect()
	o.Node, o.Ticket = w.node, ticket
	head, err := json.Marshal(o)
	if err != nil {
		give()
		endSpan(err)
		return nil, fmt.Errorf("write the message: %w", err)
	}
	stored, err := w.store.Offer(o.Source, nats.Header{headerOffer: {string(head)}}, o.Payload)
	if err != nil {
		give()
		endSpan(err)
		return nil, err
	}
	return func(ctx context.Context) (v Verdict, err error) {
		defer give()
		defer func() { endSpan(err) }()
		seq, err := stored(ctx)
		if err != nil {
			return Verdict{}, err
		}
		return w.awaitVerdict(ctx, &o, seq, wait, late)
	}, nil
}

// awaitVerdict waits for the worker of the partition, and finds out without it if that takes long.
func (w *ingest) awaitVerdict(ctx context.Context, o *Offer, seq uint64, wait <-chan Verdict, late time.Time) (Verdict, error) {
	timer := time.NewTimer(time.Until(late))
	defer timer.Stop()
	select {
	case v := <-wait:
		return v, nil
	case <-timer.C:
	case <-ctx.Done():
	}
	// Its partition is being taken over. It is stored and will be worked on, unless it is one that is known already.
	r, err := w.store.Load(context.WithoutCancel(ctx), o.Source, o.ID)
	switch {
	case err != nil || r.Ingest == strconv.FormatUint(seq, 10):
		return Verdict{Outcome: Accepted, Status: machine.Arrived}, nil
	case r.Hash != hash(o.Receiver, o.Payload):
		return Verdict{Outcome: Conflict, Status: r.Status}, nil
	}
	return Verdict{Outcome: Duplicate, Status: r.Status}, nil
}

// ingest takes messages in: from senders, and those whose time to live is over.
type ingest struct {
	*core
	verdicts *verdicts
}

// fromSender is the FromSender worker of one partition: it drops duplicates, begins to track a message and routes it
// to its receiver.
func (w *ingest) fromSender(partition int) worker {
	worker := w.newWorker(w.store.StreamName(store.FromSender), fmt.Sprintf("from_sender_%d", partition), w.store.PartitionFilter(partition), true)
	turns := turns{w: w.core}
	worker.started = turns.started
	worker.opts = append(worker.opts, jetpull.OrderedBy(func(m *jetpull.Msg) string { return m.Subject() }))
	worker.handle = func(ctx context.Context, m *jetpull.Msg) error {
		meta, err := m.Metadata()
		if err != nil {
			return err
		}
		ingest := strconv.FormatUint(meta.Sequence.Stream, 10)
		o, err := parseOffer(m.Subject(), m.Headers(), m.Data())
		if most := w.store.MaxPayload(); err == nil && len(o.Payload) > most {
			err = fmt.Errorf("the payload has %d bytes: %d are the most", len(o.Payload), most)
		}
		if err != nil {
			w.cfg.Metrics.ingested("malformed")
			w.cfg.Reporter.Report(ctx, fmt.Errorf("a message that was published cannot be read: %w", err), "subject", m.Subject())
			return w.store.Quarantine(ctx, m.Subject(), ingest, m.Data(), err)
		}
		r, ok := w.store.Receiver(o.Receiver)
		ordered := !ok || r.Order != store.OrderNone
		if ordered {
			turn, err := turns.mine(ctx, m, store.FromSender, m.Subject(), m.Subject())
			if err != nil || !turn {
				return err
			}
		}
		endSpan := func(error) {}
		if o.Node == "" {
			endSpan = beginTrace(&o, trace.SpanKindConsumer)
		}
		verdict, err := w.accept(ctx, o, ingest, meta.Timestamp)
		endSpan(err)
		if err != nil {
			return jetpull.Retry(firstPause, err)
		}
		if ordered {
			turns.settle(m.Subject(), meta.Sequence.Stream)
		}
		w.cfg.Metrics.ingested(string(verdict.Outcome))
		w.log.Debug("message from a sender", "source", o.Source, "message", o.ID, "receiver", o.Receiver, "outcome", verdict.Outcome, "trace", traceID(o.Trace))
		return nil
	}
	return worker
}

// parseOffer reads a message of the stream from_sender. The subject has partition and source after the queue's name.
func parseOffer(subject string, h nats.Header, payload []byte) (Offer, error) {
	o := Offer{Payload: payload}
	_, rest, _ := strings.Cut(subject, "."+string(store.FromSender)+".")
	_, source, _ := strings.Cut(rest, ".")
	if head := h.Get(headerOffer); head != "" {
		if err := json.Unmarshal([]byte(head), &o); err != nil {
			return o, fmt.Errorf("header %s: %w", headerOffer, err)
		}
		// What a publisher may send is a matter of the subject, and so are order and partition.
		if store.Token(o.Source) != source {
			return o, fmt.Errorf("header %s is of the source %q, and the subject of another: %q", headerOffer, o.Source, source)
		}
		if err := CheckHeaders(o.Headers); err != nil {
			return o, fmt.Errorf("header %s: %w", headerOffer, err)
		}
	} else {
		o.Source = source
		if decoded, err := url.PathUnescape(source); err == nil {
			o.Source = decoded
		}
		o.ID, o.Receiver, o.Trace = h.Get(HeaderMessageID), h.Get(HeaderReceiver), cmp.Or(h.Get(headerTrace), h.Get("Traceparent"))
	}
	return o, errors.Join(CheckID("the source, which is the end of the subject,", o.Source), CheckID("header "+HeaderMessageID, o.ID),
		CheckID("header "+HeaderReceiver, o.Receiver))
}

// accept does the work for one message. The create of its record decides whether it is new: a message that is
// delivered here twice finds its own, by the ingest.
func (w *ingest) accept(ctx context.Context, o Offer, ingest string, at time.Time) (Verdict, error) {
	if o.Node == "" {
		o.Sender = w.store.OwnerOf(o.Source)
	}
	e := store.Entry{Headers: o.Headers, Trace: o.Trace, Payload: o.Payload}
	e.Record = machine.Record{
		Source: o.Source, ID: o.ID, Receiver: o.Receiver, Sender: o.Sender, Hash: hash(o.Receiver, o.Payload), Ingest: ingest,
		Status: machine.Arrived, ArrivedAt: at.UTC(),
	}
	receiver, err := w.FindReceiver(ctx, o.Receiver)
	unknown := errors.Is(err, store.ErrNotFound)
	switch {
	case unknown:
		e.Record, _ = machine.Next(e.Record, machine.Event{
			Kind: machine.GiveUp, Now: w.store.Now(), Stage: machine.FromSender, Reason: machine.UnknownReceiver,
			Error: fmt.Sprintf("no receiver is called %q", o.Receiver), Policy: w.policy(receiver, o.Sender),
		})
		defer w.store.Failing()()
	case err != nil:
		return Verdict{}, err
	case receiver.TTL > 0:
		e.ExpiresAt = e.ArrivedAt.Add(receiver.TTL)
	}
	verdict := Verdict{Outcome: Accepted, Status: e.Status}
	w.crashpoint("before-create")
	created, err := w.store.Create(ctx, e.Record)
	known := errors.Is(err, store.ErrConflict)
	if known {
		created, err = w.store.Load(ctx, o.Source, o.ID)
		switch {
		case errors.Is(err, store.ErrNotFound) && created.Revision != 0:
			known = false // somebody deleted the key
			created, err = w.store.Swap(ctx, created, e.Record)
		case errors.Is(err, store.ErrMalformed):
			// Whether it is of the same message is not known, and to try again would hold up the source for ever.
			w.cfg.Reporter.Report(ctx, err, "source", o.Source, "message", o.ID)
			verdict, err = Verdict{Outcome: Conflict}, nil
		case err != nil:
		case created.Hash != e.Hash:
			verdict = Verdict{Outcome: Conflict, Status: created.Status}
		case created.Ingest != ingest:
			verdict = Verdict{Outcome: Duplicate, Status: created.Status}
		}
	}
	if err != nil {
		return verdict, err
	}
	w.verdicts.say(o.Node, o.Ticket, verdict)
	if verdict.Outcome == Conflict {
		w.log.Warn("another message under the same ID is dropped", "source", o.Source, "message", o.ID)
		return verdict, nil
	}
	e.Versioned = created
	w.crashpoint("after-create")
	err = w.route(ctx, &e, known, unknown)
	w.crashpoint("after-route")
	return verdict, err
}

// route puts a message that has just arrived into the queue of its receiver. One that has moved on is left alone: it
// is a duplicate, or this worker's own after a crash behind the enqueue. One that was known already is enqueued where a
// worker died before it had done so, and not if its entry waits. If its receiver was deleted meanwhile, it fails here: a receiver
// that was forgotten has no lane that could give it up.
func (w *ingest) route(ctx context.Context, e *store.Entry, known, deleted bool) error {
	if e.Status == machine.Failed && e.Failure.Stage == machine.FromSender {
		return w.follow(ctx, e)
	}
	if e.Status != machine.Arrived || e.Attempt > 0 {
		return nil
	}
	if known {
		if waits, err := w.waits(ctx, &e.Record); waits || err != nil {
			return err
		}
	}
	if deleted {
		next, ok := machine.Next(e.Record, machine.Event{
			Kind: machine.GiveUp, Now: w.store.Now(), Stage: machine.FromSender, Reason: machine.ReceiverDeleted,
			Error: "the receiver was deleted", Policy: w.policy(store.Receiver{}, e.Sender),
		})
		if !ok {
			return store.ErrConflict
		}
		return w.advance(ctx, e, next)
	}
	if !e.ExpiresAt.IsZero() {
		if err := w.store.Remind(ctx, e.Source, e.ID, e.ExpiresAt); err != nil {
			return err
		}
	}
	return w.enqueue(ctx, store.ToReceiver, e)
}

// FindReceiver finds a receiver that another process may have made a moment ago.
func (w *core) FindReceiver(ctx context.Context, name string) (store.Receiver, error) {
	r, ok := w.store.Receiver(name)
	var err error
	if !ok || r.Deleted {
		r, err = w.store.ReadReceiver(ctx, name)
	}
	if err == nil && r.Deleted {
		err = store.ErrNotFound
	}
	return r, err
}

// receiverNow returns a receiver as this process knows it. The bucket decides whether a receiver was deleted: what this process
// has seen of it may be old. The error is errDeleted, errBehind where the bucket has a receiver that this process does not know
// yet, or that of the store.
func (w *core) receiverNow(ctx context.Context, name string) (store.Receiver, error) {
	if r, ok := w.store.Receiver(name); ok && !r.Deleted {
		return r, nil
	}
	r, err := w.FindReceiver(ctx, name)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return r, errDeleted
	case err != nil:
		return r, err
	}
	return r, errBehind
}
