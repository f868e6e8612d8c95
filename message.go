package jetpull

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull/internal/testmsg"
	"github.com/jetpull/jetpull/internal/transport"
	"github.com/jetpull/jetpull/internal/wire"
	"github.com/jetpull/jetpull/internal/worker"
)

// Msg is a message of a stream, delivered by a pull. It implements [jetstream.Msg]. A message is acknowledged
// once: the first of Ack, DoubleAck, Nak, NakWithDelay, Term, TermWithReason, AckNext and ConfirmAcks settles
// it, and a later one returns [jetstream.ErrMsgAlreadyAckd]. Any of them may be called from any goroutine.
type Msg struct {
	raw     *nats.Msg
	sub     *Subscription
	session *session      // in which the message arrived
	run     *run          // with ManualAck: the run that holds the message
	size    int           // as the server counts it for MaxBytes
	state   atomic.Uint32 // Undecided, then claimed, then the worker.Settlement that was sent; with ack policy none it stays claimed
}

// claimed is the state of a message while its acknowledgement is sent, so that no other is sent.
const claimed = math.MaxUint32

func (m *Msg) claim() bool { return m.state.CompareAndSwap(uint32(worker.Undecided), claimed) }

// unclaim allows m to be acknowledged again.
func (m *Msg) unclaim() { m.state.Store(uint32(worker.Undecided)) }

// settlement returns how m was settled.
func (m *Msg) settlement() worker.Settlement {
	if how := m.state.Load(); how != claimed {
		return worker.Settlement(how)
	}
	return worker.Undecided
}

var _ jetstream.Msg = (*Msg)(nil)

// empty is the frame of a Msg that no call has returned.
var empty nats.Msg

// frame returns the message as it arrived.
func (m *Msg) frame() *nats.Msg { return cmp.Or(m.raw, &empty) }

// bound returns an error if no call has returned m.
func (m *Msg) bound() error {
	if m.sub == nil {
		return fmt.Errorf("jetpull: this Msg was not delivered: %w", jetstream.ErrMsgNotBound)
	}
	return nil
}

// Data returns the payload.
func (m *Msg) Data() []byte { return m.frame().Data }

// Headers returns the headers, or nil if there are none.
func (m *Msg) Headers() nats.Header { return m.frame().Header }

// Subject returns the subject that the message was published to.
func (m *Msg) Subject() string { return m.frame().Subject }

// Reply returns the subject that acknowledgements go to.
func (m *Msg) Reply() string { return m.frame().Reply }

// Metadata returns the metadata of the message's delivery, read from its reply subject. It returns
// [jetstream.ErrNotJSMessage] if that is not the reply subject of a JetStream delivery.
func (m *Msg) Metadata() (*jetstream.MsgMetadata, error) {
	// nats.go returns metadata only for a message with a subscription, and reads invalid numbers as zero.
	meta, err := (&nats.Msg{Reply: m.Reply(), Sub: &nats.Subscription{}}).Metadata()
	if _, ok := wire.ParseAck("", m.Reply()); !ok || err != nil {
		return nil, fmt.Errorf("jetpull: reply subject %q: %w", m.Reply(), jetstream.ErrNotJSMessage)
	}
	return &jetstream.MsgMetadata{
		Sequence:     jetstream.SequencePair(meta.Sequence),
		NumDelivered: meta.NumDelivered,
		NumPending:   meta.NumPending,
		Timestamp:    meta.Timestamp,
		Stream:       meta.Stream,
		Consumer:     meta.Consumer,
		Domain:       meta.Domain,
	}, nil
}

// Sequence returns the message's sequence in its stream, or 0 if its reply
// subject does not have it. Unlike Metadata it allocates nothing.
func (m *Msg) Sequence() uint64 { return m.ack().StreamSeq }

// Delivered returns how often the server has delivered the message, this time included, or 0 if its reply subject does
// not have the number. Retries in place, which Consume makes with [OrderedBy], do not count. It allocates nothing.
func (m *Msg) Delivered() uint64 { return m.ack().Delivered }

// ConsumerInfo asks the server for the current state of the consumer that delivered the message, as [Subscription.Info] does.
func (m *Msg) ConsumerInfo(ctx context.Context) (*jetstream.ConsumerInfo, error) {
	if err := m.bound(); err != nil {
		return nil, err
	}
	return m.sub.Info(ctx)
}

// ack returns the fields of the reply subject, without the names.
func (m *Msg) ack() wire.Ack {
	if m.sub == nil {
		return wire.Ack{}
	}
	a, _ := wire.ParseAck(m.sub.ackPrefix, m.raw.Reply)
	return a
}

// Ack acknowledges the message without waiting for the server. With ack policy none nothing is sent.
func (m *Msg) Ack() error { return m.settle(wire.VerbAck, worker.Acked) }

// Nak asks the server to redeliver the message immediately. Until then, it counts as ack pending. If the consumer was reset after the
// server delivered m, the server ignores the NAK. If it has already delivered the message again, the message waits for AckWait.
func (m *Msg) Nak() error { return m.settle(wire.VerbNak, worker.Naked) }

// NakWithDelay asks the server to redeliver the message after delay. A delay of 0 or less is Nak.
func (m *Msg) NakWithDelay(delay time.Duration) error {
	if delay <= 0 {
		return m.Nak()
	}
	if m.sub != nil {
		// The server adds the entry of BackOff for this delivery to the delay, and subtracts AckWait. It accepts a delay below 0.
		if cfg := m.sub.config(); len(cfg.BackOff) > 0 {
			delay -= cfg.BackOff[min(max(int(m.Delivered()), 1), len(cfg.BackOff))-1] - cfg.AckWait
		}
	}
	return m.settle(wire.Nak(delay), worker.Naked)
}

// Term asks the server never to redeliver the message.
func (m *Msg) Term() error { return m.settle(wire.VerbTerm, worker.Terminated) }

// TermWithReason is Term with a reason for the server's advisory. The reason is sent as one line and cut at
// 1,024 bytes, because the server would not accept one over its max_payload.
func (m *Msg) TermWithReason(reason string) error {
	if reason = worker.Line(reason); reason == "" {
		return m.Term()
	}
	return m.settle(wire.Term(reason), worker.Terminated)
}

// InProgress reports to the server that the message is in progress, which restarts its AckWait. It may be
// called any number of times until the message is settled.
func (m *Msg) InProgress() error {
	if err := m.bound(); err != nil {
		return err
	}
	if m.state.Load() != uint32(worker.Undecided) {
		return jetstream.ErrMsgAlreadyAckd
	}
	if m.session.ackNone {
		return nil
	}
	if err := m.publish(wire.VerbProgress); err != nil {
		return err
	}
	m.sub.counts.inProgress.Add(1)
	return nil
}

// DoubleAck acknowledges the message and waits until the server has confirmed it, for 5 s if ctx has no deadline. It
// fails with [ErrTimeout] if the server does not confirm it; the message can then be acknowledged again.
func (m *Msg) DoubleAck(ctx context.Context) error {
	if err := checkContext(ctx); err != nil {
		return err
	}
	ctx, cancel := withDefaultTimeout(ctx)
	defer cancel()
	return m.settleBy(wire.VerbAck, worker.Acked, func(m *Msg, body []byte) error {
		if r := m.sub.recorder; r != nil {
			r.Sent(body, true)
			return nil
		}
		nc, before, begun := m.sub.nc, m.sub.nc.LastError(), time.Now()
		if _, err := nc.RequestWithContext(ctx, m.raw.Reply, body); err != nil {
			return requestError(nc, before, begun, "double ack", m.raw.Reply, err)
		}
		return nil
	})
}

// refusedAck returns the server's refusal of an acknowledgement of the Subscription's messages; see transport.Refusal.
func (s *Subscription) refusedAck(before error) error {
	return transport.Refusal(s.nc, before, s.ackPrefix+">", wire.AckPrefix+"*.*."+s.stream+"."+s.consumer+".>")
}

// is records how the message was settled.
func (m *Msg) is(how worker.Settlement) {
	m.state.Store(uint32(how))
	m.sub.counts.settled[how].Add(1)
	if m.run != nil {
		id, _, _ := m.identify()
		m.run.pool.Vacate(m, id)
	}
}

// settle sends the acknowledgement that settles the message.
func (m *Msg) settle(body []byte, how worker.Settlement) error {
	return m.settleBy(body, how, (*Msg).publish)
}

// settleBy settles the message by an acknowledgement that send sends.
func (m *Msg) settleBy(body []byte, how worker.Settlement, send func(m *Msg, body []byte) error) error {
	if err := m.bound(); err != nil {
		return err
	}
	if !m.claim() {
		return jetstream.ErrMsgAlreadyAckd
	}
	if m.session.ackNone {
		return nil
	}
	if how == worker.Naked { // the redelivery can arrive before publish returns
		m.state.Store(uint32(how))
	}
	if err := send(m, body); err != nil {
		m.unclaim()
		return err
	}
	m.is(how)
	return nil
}

func (m *Msg) publish(body []byte) error {
	if r := m.sub.recorder; r != nil {
		r.Sent(body, false)
		return nil
	}
	if err := m.sub.nc.Publish(m.raw.Reply, body); err != nil {
		return fmt.Errorf("jetpull: acknowledge %s with %s: %w", m.raw.Reply, body, closedError(err))
	}
	return nil
}

// ackAgain acknowledges a redelivery of a message that was acknowledged before. If acknowledgements do not reach the server, nothing else shows
// it, so ackAgain waits for the confirmation of one message at a time.
func (r *run) ackAgain(m *Msg) error {
	confirm := func(ctx context.Context) {
		defer r.confirming.Store(false)
		if err := ConfirmAcks(ctx, m); err != nil && ctx.Err() == nil && !r.report.Disturbed() {
			err = fmt.Errorf("jetpull: acknowledgements do not reach the server, which redelivers their messages; if the stream belongs to another "+
				"account, import its %s>: %w", wire.AckPrefix, err)
			r.report.Later(slog.LevelWarn, "jetpull: an acknowledgement is not confirmed", "error", err)
			r.report.Error(err)
		}
	}
	if !r.confirming.CompareAndSwap(false, true) || !r.sub.driver.Go(confirm) {
		return m.Ack()
	}
	return nil
}

// AckNext calls Ack and then [Subscription.Next] with opts. It does not use the server's +NXT: the next message can come from any
// pull, as for other callers of Next, and the server does not confirm the acknowledgement. A pull that it sends usually shares one
// write to the connection with the acknowledgement.
//
// The message is acknowledged even if no next message arrives, unless the error matches [ErrInvalidOption] or [jetstream.ErrMsgAlreadyAckd], or
// says that the acknowledgement could not be sent. Then it can still be acknowledged. A consumer with ack policy none is refused.
func (m *Msg) AckNext(ctx context.Context, opts ...NextOption) (*Msg, error) {
	s := m.sub
	if err := m.bound(); err != nil {
		return nil, err
	}
	if m.session.ackNone {
		return nil, invalid("AckNext", "consumer %q has ack policy none, so there is nothing to acknowledge; use Next", s.consumer)
	}
	if s.recorder != nil {
		return nil, cmp.Or(m.Ack(), ErrNoMessages)
	}
	set, err := callSettings(ctx, s, callNext, opts)
	if errors.Is(err, ErrInvalidOption) {
		return nil, err
	}
	// If the context has ended, the message is acknowledged, but no pull is sent.
	if err := cmp.Or(m.Ack(), err); err != nil {
		return nil, err
	}
	return s.next(ctx, set)
}

func init() {
	testmsg.New = func(subject, reply string, header map[string][]string, data []byte, r testmsg.Recorder) any {
		s := &Subscription{recorder: r}
		s.session.Store(&session{})
		return &Msg{raw: &nats.Msg{Subject: subject, Reply: reply, Header: header, Data: data}, sub: s, session: s.session.Load()}
	}
	testmsg.RecorderOf = func(m any) testmsg.Recorder {
		if m := m.(*Msg); m != nil && m.sub != nil {
			return m.sub.recorder
		}
		return nil
	}
}
