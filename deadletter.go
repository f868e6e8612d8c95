package jetpull

import (
	"context"
	"errors"
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
	// HeaderDeadReason is the error of the last attempt.
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
)

// deadLetterWait bounds how long a dead letter may take to be confirmed.
const deadLetterWait = 5 * time.Second

// maxReason bounds the reason in a header and in the server's advisory.
const maxReason = 1024

// giveUp ends a message that has failed for the last time. With a dead letter
// the original is terminated only when the copy is stored; until then it is
// redelivered. The copy's message id is the same for each try, so the stream
// keeps one.
func (st *stream) giveUp(ctx context.Context, h held, attempts int, cause error) {
	subject := st.set.streaming.deadLetter
	reason := headerText(cause.Error())
	if subject != "" && !st.bury(ctx, h, subject, attempts, reason) {
		st.retry(h, attempts, max(time.Second, st.retryDelay(attempts)))
		return
	}
	st.settledBy(h, h.m.TermWithReason(fmt.Sprintf("failed %d times: %s", attempts, reason)))
}

// bury publishes the dead letter and reports whether it is stored. The last
// delivery that MaxDeliver allows cannot be had again, so there it tries on for
// as long as handlers may go on, while the message is kept alive.
func (st *stream) bury(ctx context.Context, h held, subject string, attempts int, reason string) bool {
	most := st.sub.config.MaxDeliver
	for {
		err := st.publishDead(h.m, subject, attempts, reason)
		if err == nil {
			return true
		}
		st.report(fmt.Errorf("jetpull: dead letter of stream sequence %d to %s: %w", h.m.Sequence(), subject, err))
		if most <= 0 || attempts < most {
			return false
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			st.report(fmt.Errorf("jetpull: stream sequence %d was delivered for the last time and has no dead letter: %w", h.m.Sequence(), context.Cause(ctx)))
			return false
		}
	}
}

func (st *stream) publishDead(m *Msg, subject string, attempts int, reason string) error {
	ctx, cancel := context.WithTimeout(context.Background(), deadLetterWait)
	defer cancel()
	s := st.sub
	dead := nats.NewMsg(subject)
	dead.Data = m.Data()
	maps.Copy(dead.Header, m.Headers())
	// What the server read in the original's headers must not be read again.
	maps.DeleteFunc(dead.Header, func(k string, _ []string) bool { return strings.HasPrefix(k, "Nats-") })
	sequence := strconv.FormatUint(m.Sequence(), 10)
	if id := m.Headers().Get(jetstream.MsgIDHeader); id != "" {
		dead.Header.Set(HeaderDeadMsgID, id)
	}
	dead.Header.Set(HeaderDeadReason, reason)
	dead.Header.Set(HeaderDeadStream, s.stream)
	dead.Header.Set(HeaderDeadSequence, sequence)
	dead.Header.Set(HeaderDeadSubject, m.Subject())
	dead.Header.Set(HeaderDeadConsumer, s.consumer)
	dead.Header.Set(HeaderDeadAttempts, strconv.Itoa(attempts))
	_, err := s.js.PublishMsg(ctx, dead, jetstream.WithMsgID(s.stream+":"+s.consumer+":"+sequence))
	return err
}

// headerText makes s fit for a header: one line of bounded length.
func headerText(s string) string {
	s = strings.Join(strings.Fields(strings.ToValidUTF8(s, "?")), " ")
	if len(s) > maxReason {
		s = strings.ToValidUTF8(s[:maxReason], "")
	}
	return s
}

// checkDeadLetter refuses a dead letter subject that no stream stores, and one
// that the consumer itself delivers: that would be a loop.
func (s *Subscription) checkDeadLetter(ctx context.Context, set *settings) error {
	subject := set.streaming.deadLetter
	if subject == "" {
		return nil
	}
	ctx, cancel := withDefaultTimeout(ctx)
	defer cancel()
	stream, err := s.js.StreamNameBySubject(ctx, subject)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return invalid("DeadLetter", "no stream stores subject %q; create one", subject)
	}
	if err != nil {
		return requestError("find the stream of dead letter subject "+subject, "STREAM.NAMES", err)
	}
	if stream == s.stream && s.delivers(subject) {
		return invalid("DeadLetter", "%q is delivered by consumer %q itself, which would be a loop; use a subject outside its filter", subject, s.consumer)
	}
	return nil
}

// publishable reports whether subject can be published to: tokens between
// dots, without spaces and wildcards.
func publishable(subject string) bool {
	for token := range strings.SplitSeq(subject, ".") {
		if token == "" || strings.ContainsAny(token, " \t\r\n\f*>") {
			return false
		}
	}
	return true
}

// delivers reports whether the consumer's filter matches subject.
func (s *Subscription) delivers(subject string) bool {
	filters := s.config.FilterSubjects
	if s.config.FilterSubject != "" {
		filters = append([]string{s.config.FilterSubject}, filters...)
	}
	if len(filters) == 0 {
		return true
	}
	for _, f := range filters {
		if matches(f, subject) {
			return true
		}
	}
	return false
}

// matches reports whether a subject filter matches a subject.
func matches(filter, subject string) bool {
	want, have := strings.Split(filter, "."), strings.Split(subject, ".")
	for i, token := range want {
		if token == ">" {
			return len(have) > i
		}
		if i >= len(have) || token != "*" && token != have[i] {
			return false
		}
	}
	return len(want) == len(have)
}
