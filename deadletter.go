package jetpull

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull/internal/transport"
	"github.com/jetpull/jetpull/internal/wire"
)

// The headers that Consume adds to a dead letter.
const (
	// HeaderDeadReason is the error of the last attempt, in one line of at most 1,024 bytes; of a panic, its value.
	HeaderDeadReason = "Dead-Letter-Reason"
	// HeaderDeadStream is the stream that the message was in.
	HeaderDeadStream = "Dead-Letter-Stream"
	// HeaderDeadSequence is the message's sequence in that stream.
	HeaderDeadSequence = "Dead-Letter-Sequence"
	// HeaderDeadSubject is the subject that the message was published to.
	HeaderDeadSubject = "Dead-Letter-Subject"
	// HeaderDeadConsumer is the consumer that delivered it.
	HeaderDeadConsumer = "Dead-Letter-Consumer"
	// HeaderDeadAttempts is how often it was tried: its deliveries, and its retries by OrderedBy.
	HeaderDeadAttempts = "Dead-Letter-Attempts"
	// HeaderDeadMsgID is the Nats-Msg-Id that the message had, if any.
	HeaderDeadMsgID = "Dead-Letter-Msg-Id"
	// HeaderDeadPayload says why the copy has no payload: "gone" where the consumer delivers headers only and the stream
	// no longer had the message, "too large" where with the headers above it is over the server's max_payload.
	HeaderDeadPayload = "Dead-Letter-Payload"
)

const (
	// headerMsgSize is how large a payload is that was left out.
	headerMsgSize = "Nats-Msg-Size"
	// deadLetterWait bounds how long a dead letter may take to be confirmed.
	deadLetterWait = 5 * time.Second
)

// deadLetter stores the dead letter of m, and logs that it did or why not.
func (r *run) deadLetter(ctx context.Context, m *Msg, reason string, attempts int) error {
	subject := r.set.run.deadLetter
	log := r.report.Log().With("sequence", m.Sequence(), "subject", m.Subject(), "dead_letter", subject, "attempts", attempts, "reason", reason)
	err := r.sub.bury(ctx, m, subject, reason, attempts)
	if err != nil {
		log.Warn("jetpull: dead letter was not stored", "error", err)
	} else {
		log.Warn("jetpull: message became a dead letter")
	}
	return err
}

// bury stores the dead letter of m on subject. It gives up when ctx, the handler's, is cancelled: then the
// original is handed back at once and does not wait for its AckWait.
func (s *Subscription) bury(ctx context.Context, m *Msg, subject, reason string, attempts int) error {
	ctx, cancel := context.WithTimeout(ctx, deadLetterWait)
	defer cancel()
	sequence := strconv.FormatUint(m.Sequence(), 10)
	payload, gone, err := s.payload(ctx, m)
	if err == nil {
		dead := nats.NewMsg(subject)
		dead.Data = payload
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
		if gone {
			dead.Header.Set(HeaderDeadPayload, "gone")
		}
		// With its time, because another message has its sequence when the stream is recreated.
		id := jetstream.WithMsgID(fmt.Sprintf("%s:%s:%s:%d", s.stream, s.consumer, sequence, m.ack().Timestamp))
		if _, err = s.js.PublishMsg(ctx, dead, id); errors.Is(err, nats.ErrMaxPayload) {
			dead.Data = nil // these headers are over what the server takes
			dead.Header.Set(HeaderDeadPayload, "too large")
			_, err = s.js.PublishMsg(ctx, dead, id)
		}
	}
	if err != nil {
		return fmt.Errorf("jetpull: dead letter of stream sequence %s to %s: %w", sequence, subject, err)
	}
	return nil
}

// payload is what m was published with. A consumer that delivers headers only leaves it in the stream, and
// there it may be gone.
func (s *Subscription) payload(ctx context.Context, m *Msg) (payload []byte, gone bool, err error) {
	if !s.config().HeadersOnly || m.Headers().Get(headerMsgSize) == "0" {
		return m.Data(), false, nil
	}
	// The stream's leader is asked: a replica that answers direct gets may be behind and not have the message yet.
	subject := apiPrefix(s.js) + "STREAM.MSG.GET." + s.stream
	what := fmt.Sprintf("read the payload of stream sequence %d", m.Sequence())
	var reply *nats.Msg
	err = transport.Request(ctx, s.nc, subject, func(ctx context.Context) (err error) {
		reply, err = s.nc.RequestWithContext(ctx, subject, fmt.Appendf(nil, `{"seq":%d}`, m.Sequence()))
		return err
	})
	if err != nil {
		return nil, false, requestError(what, subject, err)
	}
	var answer struct {
		Error   *jetstream.APIError `json:"error"`
		Message struct {
			Data []byte `json:"data"`
		} `json:"message"`
	}
	if err := json.Unmarshal(reply.Data, &answer); err != nil {
		return nil, false, fmt.Errorf("jetpull: %s: the answer on %s is no JSON: %w", what, subject, err)
	}
	switch {
	case answer.Error == nil:
		return answer.Message.Data, false, nil
	case answer.Error.ErrorCode == jetstream.JSErrCodeMessageNotFound:
		return nil, true, nil
	}
	return nil, false, fmt.Errorf("jetpull: %s: %w", what, answer.Error)
}

// checkDeadLetter refuses a dead letter subject that no stream stores, and one that the consumer delivers: that would
// be a loop. Loops through other streams show when a message comes in that is a dead letter of this consumer.
func (s *Subscription) checkDeadLetter(ctx context.Context, set *settings) error {
	subject := set.run.deadLetter
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
	s.warnLastDelivery(set)
	return nil
}

// warnLastDelivery warns, once for a Subscription, where dead letters can stop Consume.
func (s *Subscription) warnLastDelivery(set *settings) {
	n := s.config().MaxDeliver
	if set.run.deadLetter == "" || n <= 0 || s.warned.Swap(true) {
		return
	}
	set.log().Warn("jetpull: at the last delivery that MaxDeliver allows Consume waits until the dead letter is stored; without MaxDeliver, MaxAttempts alone decides",
		"stream", s.stream, "consumer", s.consumer, "max_deliver", n)
}

// delivers reports whether the consumer's filter matches a subject.
func (s *Subscription) delivers(subject string) bool {
	filters := s.config().FilterSubjects
	if one := s.config().FilterSubject; one != "" {
		filters = append([]string{one}, filters...)
	}
	return len(filters) == 0 || slices.ContainsFunc(filters, func(f string) bool { return wire.Matches(f, subject) })
}
