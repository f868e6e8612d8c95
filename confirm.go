package jetpull

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull/internal/wire"
	"github.com/jetpull/jetpull/internal/worker"
)

const (
	// confirmAtOnce is how many acknowledgements are on their way at a time.
	confirmAtOnce = 1024
	// confirmAgain is when an acknowledgement that was not confirmed is sent again; the server confirms it again.
	confirmAgain = time.Second
)

// ConfirmAcks acknowledges messages and waits until the server has confirmed each: DoubleAck for many, with
// all acknowledgements on their way at once. The messages may come from any number of Subscriptions. Without
// a deadline on ctx it waits 5 s.
//
// An acknowledgement that is not confirmed within a second, or that no server takes at present (status 503), is sent again
// until ctx ends.
//
// The error joins one for each message that is not confirmed, with its stream sequence: [ErrTimeout], which matches
// [ErrNoResponders] too where that was the last problem, [ErrClosed], [jetstream.ErrMsgAlreadyAckd]. Such a
// message can be acknowledged again, but for the last. Messages of a consumer with ack policy none are
// refused before anything is sent.
func ConfirmAcks(ctx context.Context, msgs ...*Msg) error {
	if ctx == nil {
		return invalid("ctx", "is nil; use context.Background()")
	}
	for i, m := range msgs {
		if m == nil || m.sub == nil {
			return invalid("msgs", "message %d is nil or was not delivered by this package", i)
		}
		if m.sub.ackNone.Load() {
			return invalid("ConfirmAcks", "consumer %q has ack policy none, so there is nothing to confirm", m.sub.consumer)
		}
	}
	ctx, cancel := withDefaultTimeout(ctx)
	defer cancel()
	var errs []error
	for len(msgs) > 0 {
		n := 1
		if msgs[0].sub.recorder != nil {
			errs, msgs = append(errs, msgs[0].DoubleAck(ctx)), msgs[1:]
			continue
		}
		for n < len(msgs) && n < confirmAtOnce && msgs[n].sub == msgs[0].sub {
			n++
		}
		errs = append(errs, confirm(ctx, msgs[0].sub, msgs[:n])...)
		msgs = msgs[n:]
	}
	return errors.Join(errs...)
}

// confirmation is a batch of acknowledgements of one Subscription.
type confirmation struct {
	sub     *Subscription
	inbox   string // prefix of the replies, before the index of the message
	msgs    []*Msg
	waiting map[string]*Msg  // by the reply that it waits for
	refused map[string]error // the last answers that were no confirmations
	errs    []error
}

func confirm(ctx context.Context, s *Subscription, msgs []*Msg) []error {
	c := &confirmation{sub: s, msgs: msgs, inbox: s.nc.NewInbox() + ".", waiting: make(map[string]*Msg, len(msgs)), refused: map[string]error{}}
	in := make(chan *nats.Msg, 8*len(msgs)) // an answer to each time that one is sent, for 5 s and a little more
	sub, err := s.nc.ChanSubscribe(c.inbox+"*", in)
	if err != nil {
		return []error{fmt.Errorf("jetpull: confirm %d acks: %w", len(msgs), closedError(err))}
	}
	defer func() { _ = sub.Unsubscribe() }() // it fails on a closed connection, where nothing is subscribed
	for i, m := range msgs {
		if !m.settled.CompareAndSwap(false, true) {
			c.fail(m, jetstream.ErrMsgAlreadyAckd)
			continue
		}
		c.waiting[c.reply(i)] = m
	}
	again := time.NewTicker(confirmAgain)
	defer again.Stop()
	c.each(c.send)
	for len(c.waiting) > 0 {
		select {
		case m := <-in:
			c.answered(m)
		case <-again.C:
			if s.nc.IsConnected() || s.nc.IsClosed() { // or else they wait to be sent already
				c.each(c.send)
			}
		case <-ctx.Done():
			c.each(func(reply string) { c.giveUp(reply, contextError(ctx, c.refused[reply])) })
		}
	}
	return c.errs
}

func (c *confirmation) reply(i int) string { return c.inbox + strconv.Itoa(i) }

// each calls f for the replies that are waited for, in the order of the messages.
func (c *confirmation) each(f func(reply string)) {
	for i := range c.msgs {
		if reply := c.reply(i); c.waiting[reply] != nil {
			f(reply)
		}
	}
}

func (c *confirmation) send(reply string) {
	if err := c.sub.nc.PublishRequest(c.waiting[reply].raw.Reply, reply, wire.VerbAck); err != nil {
		c.giveUp(reply, closedError(err))
	}
}

func (c *confirmation) answered(r *nats.Msg) {
	m := c.waiting[r.Subject]
	if m == nil {
		return
	}
	if s, ok := wire.ParseStatus(r.Header); ok && len(r.Data) == 0 {
		c.refused[r.Subject] = statusError(s, m.raw.Reply) // 503: the consumer may have no leader at present
		return
	}
	delete(c.waiting, r.Subject)
	m.is(worker.Acked)
}

// giveUp leaves a message that was not confirmed to be acknowledged again.
func (c *confirmation) giveUp(reply string, err error) {
	m := c.waiting[reply]
	delete(c.waiting, reply)
	m.settled.Store(false)
	c.fail(m, err)
}

func (c *confirmation) fail(m *Msg, err error) {
	c.errs = append(c.errs, fmt.Errorf("jetpull: confirm ack of stream sequence %d: %w", m.Sequence(), err))
}
