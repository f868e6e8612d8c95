package jetpull

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull/internal/wire"
	"github.com/jetpull/jetpull/internal/worker"
)

// The headers that Consume adds to a dead letter.
const (
	// HeaderDeadReason is the error of the last attempt, or the value of its panic, in one line of at most 1,024 bytes.
	HeaderDeadReason = "Dead-Letter-Reason"
	// HeaderDeadStream is the stream that the message was in.
	HeaderDeadStream = "Dead-Letter-Stream"
	// HeaderDeadSequence is the message's sequence in that stream.
	HeaderDeadSequence = "Dead-Letter-Sequence"
	// HeaderDeadSubject is the subject that the message was published to.
	HeaderDeadSubject = "Dead-Letter-Subject"
	// HeaderDeadConsumer is the consumer that delivered it.
	HeaderDeadConsumer = "Dead-Letter-Consumer"
	// HeaderDeadAttempts is the number of attempts: its deliveries, and its retries by OrderedBy.
	HeaderDeadAttempts = "Dead-Letter-Attempts"
	// HeaderDeadMsgID is the Nats-Msg-Id that the message had, if any.
	HeaderDeadMsgID = "Dead-Letter-Msg-Id"
	// HeaderDeadPayload is "too large" if the copy has no payload, because the payload and the headers above together
	// exceed the server's max_payload.
	HeaderDeadPayload = "Dead-Letter-Payload"
)

// deadLetter stores the dead letter of m, and logs that it did or why not. It gives up when ctx, the handler's, is
// cancelled: then the original is handed back at once and does not wait for its AckWait.
func (r *run) deadLetter(ctx context.Context, m *Msg, reason string, attempts int) error {
	s, subject := r.sub, r.set.run.deadLetter
	ctx, cancel := withDefaultTimeout(ctx)
	defer cancel()
	sequence := strconv.FormatUint(m.Sequence(), 10)
	dead := nats.NewMsg(subject)
	dead.Data = m.Data()
	maps.Copy(dead.Header, m.Headers())
	// The server acted on these headers of the original, and must not act on them again.
	maps.DeleteFunc(dead.Header, func(k string, _ []string) bool { return strings.HasPrefix(k, "Nats-") })
	for key, value := range map[string]string{
		HeaderDeadReason: reason, HeaderDeadStream: s.stream, HeaderDeadSequence: sequence,
		HeaderDeadSubject: m.Subject(), HeaderDeadConsumer: s.consumer, HeaderDeadAttempts: strconv.Itoa(attempts),
	} {
		dead.Header.Set(key, value)
	}
	if id := m.Headers().Get(jetstream.MsgIDHeader); id != "" {
		dead.Header.Set(HeaderDeadMsgID, id)
	}
	// With its time, because another message has its sequence when the stream is recreated.
	id := jetstream.WithMsgID(fmt.Sprintf("%s:%s:%s:%d", s.stream, s.consumer, sequence, m.ack().Timestamp))
	_, err := s.js.PublishMsg(ctx, dead, id)
	if errors.Is(err, nats.ErrMaxPayload) {
		dead.Data = nil // these headers are over what the server takes
		dead.Header.Set(HeaderDeadPayload, "too large")
		_, err = s.js.PublishMsg(ctx, dead, id)
	}
	log := r.report.Log.With("sequence", m.Sequence(), "subject", m.Subject(), "dead_letter", subject, "attempts", attempts, "reason", reason)
	if err != nil {
		err = fmt.Errorf("jetpull: dead letter of stream sequence %s to %s: %w", sequence, subject, err)
		log.Warn("jetpull: dead letter was not stored", "error", err)
		if s.nc.IsClosed() {
			err = fmt.Errorf("%w; %w", err, worker.ErrFinal)
		}
		return err
	}
	log.Warn("jetpull: message became a dead letter")
	return nil
}

// checkDeadLetter refuses a dead letter subject that no stream stores, and one that the consumer delivers: that would
// be a loop. A loop through other streams shows in the log, which has a line for each dead letter.
func (s *Subscription) checkDeadLetter(ctx context.Context, subject string) error {
	if subject == "" {
		return nil
	}
	ctx, cancel := withDefaultTimeout(ctx)
	defer cancel()
	stream, err := s.js.StreamNameBySubject(ctx, subject)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return invalid("DeadLetter", "no stream stores subject %q; create one", subject)
	case err != nil:
		return requestError("find the stream of dead letter subject "+subject, "STREAM.NAMES", err)
	case stream == s.stream && s.delivers(subject):
		return invalid("DeadLetter", "%q is delivered by consumer %q itself, which would be a loop; use a subject outside its filter", subject, s.consumer)
	}
	return nil
}

// delivers reports whether the consumer's filter matches a subject.
func (s *Subscription) delivers(subject string) bool {
	filters := s.config().FilterSubjects
	if one := s.config().FilterSubject; one != "" {
		filters = append([]string{one}, filters...)
	}
	return len(filters) == 0 || slices.ContainsFunc(filters, func(f string) bool { return wire.Matches(f, subject) })
}
