package partition

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/internal/lease"
	"github.com/jetpull/jetpull/internal/watch"
)

// consumer is the consumer of a partition, and this client's session with it, which subscribe begins.
type consumer interface {
	// pending returns how many messages are delivered and not acknowledged.
	pending(ctx context.Context) (int, error)
	// unpin takes the pin from any client.
	unpin(ctx context.Context) error
	// reset makes the consumer deliver again from its acknowledgement floor.
	reset(ctx context.Context) error
	subscribe(ctx context.Context) error
	// fetch returns up to n messages that the server delivers at once: first the messages handed back, in the order of the NAKs.
	fetch(ctx context.Context, n int) ([]*jetpull.Msg, error)
	// handBack hands messages back in this order, and returns when the server has processed that. If this is not certain, for example because the
	// connection was lost since subscribe, it returns an error.
	handBack(ctx context.Context, msgs []*jetpull.Msg) error
	// consume runs h until ctx ends. guard wraps h and all middleware.
	consume(ctx context.Context, h jetpull.Handler, guard jetpull.Middleware) error
	// missed reports whether a delivery was lost or went to another client, or the consumer got another leader, which forgets messages handed back.
	missed() bool
	close()
}

// errMissed says that the consumer must be reset before it delivers in order again.
var errMissed = errors.New("partition: a delivery was lost, or went to another client")

const (
	closeMost  = 2 * time.Second
	gatherMost = time.Second
)

// run is a partition while this member owns it. It has a goroutine, which the member waits for.
type run struct {
	member    *member
	partition int
	lease     *lease.Lease

	ctx      context.Context // for pulling; ended by stop and by the lease
	stop     context.CancelCauseFunc
	handlers sync.WaitGroup

	missed bool // the consumer may not deliver in order, and must be reset

	err error // why the member must leave; read after the run was sent to ended
}

// start begins a run of a partition that this member owns in the record.
func (m *member) start(n int) {
	before := m.before[n]
	m.before[n] = owner{ID: m.id, Released: true} // in case the partition moves away and back before its release is stored
	r, why := &run{member: m, partition: n, lease: m.lease}, "it had no owner"
	switch {
	case before.Released:
		why = fmt.Sprintf("member %s released it", nameOf(before.ID))
	case before.ID != "":
		m.set.count(func(c *Stats) { c.Takeovers++ })
		r.missed, why = true, fmt.Sprintf("member %s is gone without releasing it", nameOf(before.ID))
	}
	r.ctx, r.stop = context.WithCancelCause(r.lease)
	m.runs[n] = r
	go r.own(why)
}

// own consumes the partition until the run is stopped.
func (r *run) own(why string) {
	m, log := r.member, r.member.log.With("partition", r.partition)
	m.set.count(func(c *Stats) { c.Owned, c.Assigned = c.Owned+1, c.Assigned+1 })
	log.Info("partition: this member owns a partition", "why", why)
	m.options.onAssign(r.partition, why)
	for answered := time.Now(); r.ctx.Err() == nil; {
		began, err := r.consume()
		if r.ctx.Err() != nil { // the run was stopped, so err does not matter
			break
		}
		if began {
			answered = time.Now()
		}
		r.missed = r.missed || errors.Is(err, errMissed)
		late := time.Since(answered) > m.set.cfg.TTL // a server that has just started may not know the consumer yet
		missing := errors.Is(err, jetstream.ErrConsumerNotFound) || errors.Is(err, jetstream.ErrStreamNotFound) ||
			errors.Is(err, jetpull.ErrConsumerDeleted)
		switch {
		case late && missing, errors.Is(err, jetpull.ErrInvalidOption), errors.Is(err, jetpull.ErrClosed):
			r.err = fmt.Errorf("partition %d: %w", r.partition, err)
			r.stop(r.err)
		case late:
			log.Warn("partition: this member cannot consume, and tries again", "error", err)
			answered = time.Now()
		}
		log.Debug("partition: consuming again", "error", err)
		_ = watch.Sleep(r.ctx, retryPause)
	}
	m.set.count(func(c *Stats) { c.Owned, c.Revoked = c.Owned-1, c.Revoked+1 })
	why = context.Cause(r.ctx).Error()
	log.Info("partition: this member has ended its work on a partition", "why", why)
	m.options.onRevoke(r.partition, why)
	m.ended <- r
}

// consume handles messages in order until the run is stopped or a delivery is missed. It waits for all handlers, even those that ignore the end of
// DrainTimeout. A stop does not interrupt begin: messages delivered in begin would not be handed back in order.
func (r *run) consume() (began bool, err error) {
	c := r.member.consumer(r.partition)
	defer c.close()
	if err := r.begin(r.lease, c); err != nil {
		return false, err
	}
	ctx, stop := context.WithCancel(r.ctx)
	defer stop()
	err = c.consume(ctx, r.member.handler, r.guard(stop, c))
	r.handlers.Wait()
	if err != nil || c.missed() {
		err = errors.Join(err, errMissed)
	}
	return true, err
}

// guard wraps the handler and all middleware. A handler's context ends with the lease. If the handler then fails, that is not an attempt, and its
// message is handed back.
func (r *run) guard(stop func(), c consumer) jetpull.Middleware {
	return func(next jetpull.Handler) jetpull.Handler {
		return func(ctx context.Context, msg *jetpull.Msg) error {
			if !r.lease.Valid() || c.missed() {
				stop()
				return msg.Nak() // an error could count as an attempt
			}
			r.handlers.Add(1)
			defer r.handlers.Done()
			ctx, cancel := context.WithCancelCause(ctx)
			defer cancel(nil)
			defer context.AfterFunc(r.lease, func() { cancel(context.Cause(r.lease)) })()
			err := next(ctx, msg)
			if err != nil && r.lease.Err() != nil {
				_ = msg.Nak() // it fails if the handler has settled the message
			}
			return err
		}
	}
}

// begin begins a session in which the server delivers in order. It takes the pin first, because a process that was stopped can have open pulls.
func (r *run) begin(ctx context.Context, c consumer) error {
	if err := c.unpin(ctx); err != nil {
		return fmt.Errorf("partition: take the consumer: %w", err)
	}
	pending, err := c.pending(ctx)
	behind := pending > 0 && r.missed
	if behind && r.member.set.resets {
		r.member.set.count(func(c *Stats) { c.Resets++ })
		err = c.reset(ctx)
	}
	if err == nil {
		err = c.subscribe(ctx) // from now on, missed detects a former owner that pulls again
	}
	waits := behind && !r.member.set.resets
	if err == nil && waits { // until all deliveries to the last owner have expired
		err = watch.Sleep(r.ctx, r.member.set.cfg.AckWait+gatherMost)
	}
	if err == nil {
		err = r.gather(ctx, c, !waits)
	}
	return err
}

// gather makes the server redeliver the messages handed back in stream order. The server redelivers them in the order of the NAKs, which is that in
// which handlers ended. So gather fetches them all, and hands them back in order. It does not get all if a delivery or a NAK was lost, a handler has
// handed its message back with a delay, or a former owner has pulled again. If whole, that is an error.
func (r *run) gather(ctx context.Context, c consumer, whole bool) error {
	most := min(gatherMost, r.member.set.cfg.AckWait/2) // so that no message expires while it is held here
	ctx, cancel := context.WithTimeout(ctx, closeMost+most)
	defer cancel()
	var held []*jetpull.Msg
	pending, err := c.pending(ctx)
	for begin := time.Now(); err == nil && pending > len(held) && time.Since(begin) < most; _ = watch.Sleep(ctx, retryPause/20) {
		var msgs []*jetpull.Msg
		msgs, err = c.fetch(ctx, pending-len(held))
		held = append(held, msgs...)
		slices.SortFunc(held, func(a, b *jetpull.Msg) int { return cmp.Compare(a.Sequence(), b.Sequence()) })
		// A message is there twice if a former owner has handed it back meanwhile.
		held = slices.CompactFunc(held, func(a, b *jetpull.Msg) bool { return a.Sequence() == b.Sequence() })
		if err == nil {
			pending, err = c.pending(ctx)
		}
	}
	if err == nil && len(held) > 0 {
		err = c.handBack(ctx, held)
	}
	if err == nil && whole && pending > len(held) {
		return errMissed
	}
	return err
}
