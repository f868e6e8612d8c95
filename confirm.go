package jetpull

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
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
// The error joins one for each message that is not confirmed, with its stream sequence: [ErrTimeout],
// [ErrNoResponders] where nothing acknowledges for the consumer, [jetstream.ErrMsgAlreadyAckd]. Such a
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
	in      chan *nats.Msg
	msgs    []*Msg
	waiting []bool
	left    int
	errs    []error
}

func confirm(ctx context.Context, s *Subscription, msgs []*Msg) []error {
	c := &confirmation{sub: s, msgs: msgs, waiting: make([]bool, len(msgs)), inbox: s.nc.NewInbox() + "."}
	c.in = make(chan *nats.Msg, 8*len(msgs)) // an answer to each time that one is sent, for 5 s and a little more
	sub, err := s.nc.ChanSubscribe(c.inbox+"*", c.in)
	if err != nil {
		return []error{fmt.Errorf("jetpull: confirm %d acks: %w", len(msgs), closedError(err))}
	}
	defer func() { _ = sub.Unsubscribe() }() // it fails on a closed connection, where nothing is subscribed
	for i, m := range msgs {
		if !m.settled.CompareAndSwap(false, true) {
			c.fail(i, jetstream.ErrMsgAlreadyAckd)
			continue
		}
		c.waiting[i] = true
		c.left++
		if err := c.send(i); err != nil {
			c.giveUp(i, err)
		}
	}
	c.wait(ctx)
	for i, w := range c.waiting {
		if w {
			c.giveUp(i, contextError(ctx, nil))
		}
	}
	return c.errs
}

func (c *confirmation) send(i int) error {
	return closedError(c.sub.nc.PublishRequest(c.msgs[i].raw.Reply, c.inbox+strconv.Itoa(i), wire.VerbAck))
}

// wait takes confirmations until none is open or ctx ends.
func (c *confirmation) wait(ctx context.Context) {
	if c.left == 0 {
		return
	}
	again := time.NewTicker(confirmAgain)
	defer again.Stop()
	for c.left > 0 {
		select {
		case m := <-c.in:
			c.confirmed(m)
		case <-again.C:
			for i, w := range c.waiting {
				if w && c.sub.nc.IsConnected() { // or else it waits to be sent already
					_ = c.send(i)
				}
			}
		case <-ctx.Done():
			return
		}
	}
}

func (c *confirmation) confirmed(m *nats.Msg) {
	i, err := strconv.Atoi(strings.TrimPrefix(m.Subject, c.inbox))
	if err != nil || i < 0 || i >= len(c.msgs) || !c.waiting[i] {
		return
	}
	if s, ok := wire.ParseStatus(m.Header); ok && len(m.Data) == 0 {
		c.giveUp(i, statusError(s, c.msgs[i].raw.Reply))
		return
	}
	c.waiting[i] = false
	c.left--
	c.msgs[i].is(worker.Acked)
}

// giveUp leaves a message that was not confirmed to be acknowledged again.
func (c *confirmation) giveUp(i int, err error) {
	if c.waiting[i] {
		c.waiting[i] = false
		c.left--
	}
	c.msgs[i].settled.Store(false)
	c.fail(i, err)
}

func (c *confirmation) fail(i int, err error) {
	c.errs = append(c.errs, fmt.Errorf("jetpull: confirm ack of stream sequence %d: %w", c.msgs[i].Sequence(), err))
}
