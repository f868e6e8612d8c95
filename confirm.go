package jetpull

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull/internal/wire"
	"github.com/jetpull/jetpull/internal/worker"
)

const (
	// confirmAtOnce is the maximum number of acknowledgements of a Subscription in flight.
	confirmAtOnce = 1024
	// resendAfter is the time after which an unconfirmed acknowledgement is sent again. The server confirms each.
	resendAfter = time.Second
)

// ConfirmAcks acknowledges messages and waits until the server has confirmed each. It is DoubleAck for many
// messages. They may come from any number of Subscriptions. Each of these has up to 1,024 acknowledgements
// in flight. Without a deadline on ctx, ConfirmAcks waits 5 s.
//
// An acknowledgement that is not confirmed within a second, or that no server accepts at present (status 503, as for a deleted consumer),
// is sent again every second until ctx ends.
//
// The error joins one for each message that is not confirmed, with its stream sequence: [ErrTimeout], which matches
// [ErrNoResponders] too if that was the last problem, [ErrClosed] or [jetstream.ErrMsgAlreadyAckd]. Except after the last,
// the message can be acknowledged again. Messages of a consumer with ack policy none are refused before anything is sent.
func ConfirmAcks(ctx context.Context, msgs ...*Msg) error {
	if err := checkContext(ctx); err != nil {
		return err
	}
	for i, m := range msgs {
		if m == nil || m.sub == nil {
			return invalid("msgs", "message %d is nil or was not delivered by this package", i)
		}
		if m.session.ackNone {
			return invalid("ConfirmAcks", "consumer %q has ack policy none, so there is nothing to confirm", m.sub.consumer)
		}
	}
	ctx, cancel := withDefaultTimeout(ctx)
	defer cancel()
	var subs []*Subscription
	of := map[*Subscription][]*Msg{}
	for _, m := range msgs {
		if of[m.sub] == nil {
			subs = append(subs, m.sub)
		}
		of[m.sub] = append(of[m.sub], m)
	}
	errs := make([][]error, len(subs))
	var all sync.WaitGroup
	for i, s := range subs { // in parallel: the consumer of one may be gone
		all.Go(func() {
			for some := range slices.Chunk(of[s], confirmAtOnce) {
				errs[i] = append(errs[i], confirm(ctx, s, some)...)
			}
		})
	}
	all.Wait()
	return errors.Join(slices.Concat(errs...)...)
}

// confirm acknowledges messages of one Subscription, and returns the error of each. Each has a reply subject that ends in its index.
func confirm(ctx context.Context, s *Subscription, msgs []*Msg) (errs []error) {
	if s.recorder != nil {
		for _, m := range msgs {
			errs = append(errs, m.DoubleAck(ctx))
		}
		return errs
	}
	inbox, before := s.nc.NewInbox()+".", s.nc.LastError()
	in := make(chan *nats.Msg, 8*len(msgs)) // an answer for each time that an acknowledgement is sent, for a little more than 5 s
	sub, err := s.nc.ChanSubscribe(inbox+"*", in)
	if err != nil {
		return []error{fmt.Errorf("jetpull: confirm %d acks: %w", len(msgs), closedError(err))}
	}
	defer func() { _ = sub.Unsubscribe() }() // it fails on a closed connection, where nothing is subscribed
	// open marks the acknowledgements in flight. The error of such a one is its last answer that was no confirmation.
	open, left := make([]bool, len(msgs)), 0
	errs = make([]error, len(msgs))
	for i, m := range msgs {
		if open[i] = m.claim(); open[i] {
			left++
		} else {
			errs[i] = jetstream.ErrMsgAlreadyAckd
		}
	}
	giveUp := func(i int, err error) { // the message can be acknowledged again
		msgs[i].unclaim()
		open[i], errs[i] = false, err
		left--
	}
	send := func() {
		for i, m := range msgs {
			if !open[i] {
				continue
			}
			if err := s.nc.PublishRequest(m.raw.Reply, inbox+strconv.Itoa(i), wire.VerbAck); err != nil {
				giveUp(i, closedError(err))
			}
		}
	}
	again := time.NewTicker(resendAfter)
	defer again.Stop()
	send()
	for left > 0 {
		select {
		case r := <-in:
			i, err := strconv.Atoi(strings.TrimPrefix(r.Subject, inbox))
			if err != nil || i < 0 || i >= len(msgs) || !open[i] {
				continue
			}
			if st, ok := wire.ParseStatus(r.Header); ok && len(r.Data) == 0 {
				errs[i] = &StatusError{st.Code, st.Description, msgs[i].raw.Reply} // 503: the consumer may have no leader at present
				continue
			}
			open[i], errs[i] = false, nil
			left--
			msgs[i].is(worker.Acked)
		case <-again.C:
			if s.nc.IsConnected() || s.nc.IsClosed() { // otherwise they are still in the connection's buffer
				send()
			}
		case <-ctx.Done():
			refused := s.refusedAck(before)
			for i, err := range errs {
				if open[i] {
					giveUp(i, contextError(ctx, cmp.Or(refused, err)))
				}
			}
		}
	}
	for i, err := range errs {
		if err != nil {
			errs[i] = fmt.Errorf("jetpull: confirm ack of stream sequence %d: %w", msgs[i].Sequence(), err)
		}
	}
	return errs
}
