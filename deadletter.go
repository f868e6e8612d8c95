package jetpull

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

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
	// HeaderDeadPayload is "too large" if the copy has no payload, because the message with the headers above exceeds a limit of the
	// server or of the stream of dead letters.
	HeaderDeadPayload = "Dead-Letter-Payload"
	// HeaderDeadHeaders is "too large" if the copy has neither payload nor the message's own headers, for the same reason.
	HeaderDeadHeaders = "Dead-Letter-Headers"
)

// deadLetter stores the dead letter of m, and logs that it did or why not. It gives up when ctx, the handler's, is
// cancelled: then the original is handed back at once and does not wait for its AckWait. A copy that is too large is reduced, because it
// would be refused at each attempt. Any other error is an outage.
func (r *run) deadLetter(ctx context.Context, m *Msg, reason string, attempts int) error {
	s, subject := r.sub, r.set.run.deadLetter
	ctx, cancel := withDefaultTimeout(ctx)
	defer cancel()
	sequence := strconv.FormatUint(m.Sequence(), 10)
	own := map[string]string{
		HeaderDeadReason: reason, HeaderDeadStream: s.stream, HeaderDeadSequence: sequence,
		HeaderDeadSubject: m.Subject(), HeaderDeadConsumer: s.consumer, HeaderDeadAttempts: strconv.Itoa(attempts),
	}
	dead := &nats.Msg{Subject: subject, Data: m.Data(), Header: nats.Header{}}
	maps.Copy(dead.Header, m.Headers())
	// The server acted on these headers of the original, and must not act on them again.
	maps.DeleteFunc(dead.Header, func(k string, _ []string) bool { return strings.HasPrefix(k, "Nats-") })
	if id := m.Headers().Get(jetstream.MsgIDHeader); id != "" {
		dead.Header.Set(HeaderDeadMsgID, id)
	}
	// With its time, because another message has its sequence when the stream is recreated.
	id := jetstream.WithMsgID(fmt.Sprintf("%s:%s:%s:%d", s.stream, s.consumer, sequence, m.ack().Timestamp))
	var err error
	before := s.nc.LastError()
	for _, reduce := range []func(){
		func() {},
		func() { dead.Data, own[HeaderDeadPayload] = nil, "too large" },
		func() { dead.Header, own[HeaderDeadHeaders] = nats.Header{}, "too large" },
	} {
		reduce()
		for key, value := range own {
			dead.Header.Set(key, value)
		}
		if _, err = s.js.PublishMsg(ctx, dead, id); !tooLarge(err) {
			break
		}
	}
	log := r.report.Log.With("sequence", m.Sequence(), "subject", m.Subject(), "dead_letter", subject, "attempts", attempts, "reason", reason)
	if err != nil {
		err = requestError(s.nc, before, "dead letter of stream sequence "+sequence+" to "+subject, subject, err)
		log.Warn("jetpull: dead letter was not stored", "error", err)
		if s.nc.IsClosed() {
			err = fmt.Errorf("%w; %w", err, worker.ErrFinal)
		}
		return err
	}
	log.Warn("jetpull: message became a dead letter")
	return nil
}

// tooLarge reports whether a stream or the server refuses a message for its size, at each attempt.
func tooLarge(err error) bool {
	const messageExceedsMaximum, headersExceedMaximum = 10054, 10097 // codes of the server
	var api *jetstream.APIError
	return errors.Is(err, nats.ErrMaxPayload) ||
		errors.As(err, &api) && (api.ErrorCode == messageExceedsMaximum || api.ErrorCode == headersExceedMaximum)
}

// checkDeadLetter refuses a dead letter subject that no stream stores, and one that the consumer delivers: that would
// be a loop. A loop through other streams shows in the log, which has a line for each dead letter.
func (s *Subscription) checkDeadLetter(ctx context.Context, o *runSettings) error {
	subject := o.deadLetter
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
		return requestError(s.nc, before, "find the stream of dead letter subject "+subject, apiPrefix(s.js)+"STREAM.NAMES", unconnected(s.nc, begun, err))
	}
	o.deadHere = stream == s.stream
	return o.checkLoop(s.config())
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
