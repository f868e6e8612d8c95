package jetpull

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull/internal/deadletter"
	"github.com/jetpull/jetpull/internal/wire"
	"github.com/jetpull/jetpull/internal/worker"
)

// The headers that Consume adds to a dead letter.
const (
	// HeaderDeadReason is the error of the last attempt, or the value of its panic, in one line of at most 1,024 bytes.
	HeaderDeadReason = deadletter.HeaderReason
	// HeaderDeadStream is the stream that the message was in.
	HeaderDeadStream = deadletter.HeaderStream
	// HeaderDeadSequence is the message's sequence in that stream.
	HeaderDeadSequence = deadletter.HeaderSequence
	// HeaderDeadSubject is the subject that the message was published to.
	HeaderDeadSubject = deadletter.HeaderSubject
	// HeaderDeadConsumer is the consumer that delivered it.
	HeaderDeadConsumer = deadletter.HeaderConsumer
	// HeaderDeadAttempts is the number of attempts: deliveries, and retries by OrderedBy.
	HeaderDeadAttempts = deadletter.HeaderAttempts
	// HeaderDeadMsgID is the Nats-Msg-Id that the message had, if any.
	HeaderDeadMsgID = deadletter.HeaderMsgID
	// HeaderDeadPayload is "too large" if the copy has no payload, because the message with the headers above exceeds a limit of the
	// server or of the stream of dead letters.
	HeaderDeadPayload = deadletter.HeaderPayload
	// HeaderDeadHeaders is "too large" if the copy has neither payload nor the message's own headers, for the same reason.
	HeaderDeadHeaders = deadletter.HeaderHeaders
)

// deadLetter stores the dead letter of m, and logs the result. It gives up when the handler's ctx is cancelled, so that the
// original is handed back at once and does not wait for AckWait. Every error counts as an outage.
func (r *run) deadLetter(ctx context.Context, m *Msg, reason string, attempts int) error {
	s, subject := r.sub, r.set.run.deadLetter
	ctx, cancel := withDefaultTimeout(ctx)
	defer cancel()
	dead := &deadletter.Message{
		Stream: s.stream, Consumer: s.consumer, Sequence: m.Sequence(), Stored: m.ack().Timestamp, Subject: m.Subject(),
		Header: m.Headers(), Data: m.Data(), Reason: reason, Attempts: attempts,
	}
	before, begun := s.nc.LastError(), time.Now()
	err := dead.Store(ctx, s.js, subject)
	log := r.report.Log.With("sequence", m.Sequence(), "subject", m.Subject(), "dead_letter", subject, "attempts", attempts, "reason", reason)
	if err != nil {
		err = requestError(s.nc, before, begun, fmt.Sprintf("dead letter of stream sequence %d to %s", m.Sequence(), subject), subject, err)
		log.Warn("jetpull: dead letter was not stored", "error", err)
		if s.nc.IsClosed() {
			err = fmt.Errorf("%w; %w", err, worker.ErrFinal)
		}
		return err
	}
	log.Warn("jetpull: message became a dead letter")
	return nil
}

// checkDeadLetter refuses a dead letter subject that no stream stores, and one that the consumer delivers, which would be
// a loop. It does not detect a loop through other streams; the log shows that, with a line for each dead letter. It warns if messages that reach
// MaxDeliver would get no dead letter.
func (s *Subscription) checkDeadLetter(ctx context.Context, set *settings) error {
	o, subject := &set.run, set.run.deadLetter
	if subject == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, defaultMaxWait)
	defer cancel()
	before, begun := s.nc.LastError(), time.Now()
	stream, err := s.js.StreamNameBySubject(ctx, subject)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return invalid("DeadLetter", "no stream stores subject %q; create one", subject)
	case err != nil:
		return requestError(s.nc, before, begun, "find the stream of dead letter subject "+subject, apiPrefix(s.js)+"STREAM.NAMES", err)
	}
	o.deadHere = stream == s.stream
	cfg := s.config()
	if err := o.checkLoop(cfg); err != nil || cfg.MaxDeliver <= 0 {
		return err
	}
	// A missing answer proves nothing, so it causes no warning.
	if _, err := s.js.StreamNameBySubject(ctx, deadletter.Advisories+s.stream+"."+s.consumer); errors.Is(err, jetstream.ErrStreamNotFound) {
		set.log().Warn("jetpull: messages that the server has delivered MaxDeliver times get no dead letter, because no stream keeps its advisories; "+
			"run package deadletters or jetpull dlq capture, or leave MaxDeliver out", "stream", s.stream, "consumer", s.consumer,
			"max_deliver", cfg.MaxDeliver)
	}
	return nil
}

// checkLoop refuses a dead letter subject that the consumer itself delivers.
func (o *runSettings) checkLoop(cfg *jetstream.ConsumerConfig) error {
	filters := cfg.FilterSubjects
	if len(filters) == 0 {
		filters = []string{cmp.Or(cfg.FilterSubject, ">")}
	}
	if o.deadHere && slices.ContainsFunc(filters, func(f string) bool { return wire.Matches(f, o.deadLetter) }) {
		return invalid("DeadLetter", "%q is delivered by consumer %q itself, which would be a loop; use a subject outside its filter",
			o.deadLetter, cfg.Name)
	}
	return nil
}
