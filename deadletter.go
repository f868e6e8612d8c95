package jetpull

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// The headers that Consume adds to a dead letter.
const (
	// HeaderDeadReason is the error of the last attempt, in one line of at most
	// 1,024 bytes; of a panic, its value.
	HeaderDeadReason = "Dead-Letter-Reason"
	// HeaderDeadStream is the stream that the message was in.
	HeaderDeadStream = "Dead-Letter-Stream"
	// HeaderDeadSequence is the message's sequence in that stream.
	HeaderDeadSequence = "Dead-Letter-Sequence"
	// HeaderDeadSubject is the subject that the message was published to.
	HeaderDeadSubject = "Dead-Letter-Subject"
	// HeaderDeadConsumer is the consumer that delivered it.
	HeaderDeadConsumer = "Dead-Letter-Consumer"
	// HeaderDeadAttempts is how often it was delivered.
	HeaderDeadAttempts = "Dead-Letter-Attempts"
	// HeaderDeadMsgID is the Nats-Msg-Id that the message had, if any.
	HeaderDeadMsgID = "Dead-Letter-Msg-Id"
	// HeaderDeadPayload is "gone" where the consumer delivers headers only and
	// the stream no longer had the message, so that the copy has no payload.
	HeaderDeadPayload = "Dead-Letter-Payload"
)

// headerMsgSize is how large a payload is that was left out.
const headerMsgSize = "Nats-Msg-Size"

// deadLetterWait bounds how long a dead letter may take to be confirmed.
const deadLetterWait = 5 * time.Second

// maxReason bounds the reason in a header and in the server's advisory.
const maxReason = 1024

// deadMessage is a message that has failed for the last time, and what its dead
// letter says of it.
type deadMessage struct {
	held
	attempts        int
	subject, reason string
}

// giveUp ends a message that has failed for the last time. With a dead letter
// the original is terminated only when the copy is stored; until then it is
// redelivered. The copy's message id is the same for each try, so the stream
// keeps one. The last delivery that MaxDeliver allows cannot be had again, so
// there it tries on.
func (st *stream) giveUp(ctx context.Context, h held, attempts int, cause error) {
	d := deadMessage{held: h, attempts: attempts, subject: st.set.streaming.deadLetter, reason: deadReason(cause)}
	if d.subject == "" {
		st.terminate(&d)
		st.settled(h)
		return
	}
	news := st.aside.heard()
	err := st.bury(ctx, &d)
	most := st.sub.config().MaxDeliver
	switch {
	case err == nil:
		st.settled(h)
	case most <= 0 || attempts < most:
		st.retry(h, attempts, max(time.Second, st.retryDelay(attempts)))
	default:
		b := burial{deadMessage: d, news: news}
		b.failed(err)
		st.insist(ctx, b)
	}
}

// bury has the dead letter stored and terminates the original.
func (st *stream) bury(ctx context.Context, d *deadMessage) error {
	if err := st.publishDead(ctx, d); err != nil {
		err = fmt.Errorf("jetpull: dead letter of stream sequence %d to %s: %w", d.m.Sequence(), d.subject, err)
		st.report(err)
		return err
	}
	st.terminate(d)
	return nil
}

func (st *stream) terminate(d *deadMessage) {
	// If it cannot be sent the connection is gone for good.
	if err := d.m.TermWithReason(fmt.Sprintf("failed %d times: %s", d.attempts, d.reason)); err != nil {
		st.report(err)
	}
}

// publishDead stores the copy. It gives up when ctx, the handler's, is cancelled:
// then the original goes back at once and does not wait for its AckWait.
func (st *stream) publishDead(ctx context.Context, d *deadMessage) error {
	ctx, cancel := context.WithTimeout(ctx, deadLetterWait)
	defer cancel()
	s, m := st.sub, d.m
	dead := nats.NewMsg(d.subject)
	payload, gone, err := s.payload(ctx, m)
	if err != nil {
		return err
	}
	dead.Data = payload
	maps.Copy(dead.Header, m.Headers())
	// What the server read in the original's headers must not be read again.
	maps.DeleteFunc(dead.Header, func(k string, _ []string) bool { return strings.HasPrefix(k, "Nats-") })
	sequence := strconv.FormatUint(m.Sequence(), 10)
	if id := m.Headers().Get(jetstream.MsgIDHeader); id != "" {
		dead.Header.Set(HeaderDeadMsgID, id)
	}
	dead.Header.Set(HeaderDeadReason, d.reason)
	dead.Header.Set(HeaderDeadStream, s.stream)
	dead.Header.Set(HeaderDeadSequence, sequence)
	dead.Header.Set(HeaderDeadSubject, m.Subject())
	dead.Header.Set(HeaderDeadConsumer, s.consumer)
	dead.Header.Set(HeaderDeadAttempts, strconv.Itoa(d.attempts))
	if gone {
		dead.Header.Set(HeaderDeadPayload, "gone")
	}
	// With its time, because another message has its sequence when the stream is
	// made anew.
	stored := strconv.FormatInt(m.identity().stored, 10)
	_, err = s.js.PublishMsg(ctx, dead, jetstream.WithMsgID(s.stream+":"+s.consumer+":"+sequence+":"+stored))
	return err
}

// headerText makes s fit for a header and for the server's advisory: one line of
// bounded length.
func headerText(s string) string {
	s = strings.Join(strings.Fields(strings.ToValidUTF8(s, "?")), " ")
	if len(s) > maxReason {
		s = strings.ToValidUTF8(s[:maxReason], "")
	}
	return s
}

// payload is what m was published with. A consumer that delivers headers only
// leaves it in the stream, and there it may be gone.
func (s *Subscription) payload(ctx context.Context, m *Msg) (payload []byte, gone bool, err error) {
	if !s.config().HeadersOnly || m.Headers().Get(headerMsgSize) == "0" {
		return m.Data(), false, nil
	}
	// The stream's leader is asked: a replica that answers direct gets may be
	// behind and not have the message yet.
	subject := apiPrefix(s.js) + "STREAM.MSG.GET." + s.stream
	what := fmt.Sprintf("read the payload of stream sequence %d", m.Sequence())
	var reply *nats.Msg
	err = request(ctx, s.nc, subject, func(ctx context.Context) (err error) {
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
