package partition

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull"
)

// errMissed says that the consumer has to be reset, for it to deliver in order again.
var errMissed = errors.New("partition: a delivery was lost")

// run is a partition while this member owns it, or tries to. It has a goroutine, which the member waits for.
type run struct {
	*member
	partition int
	record    ownerRecord   // that this member's replaces
	err       error         // why the member must end; set before the run goes to ended, as pause is
	pause     time.Duration // before it is tried again

	ctx      context.Context // of pulling; stop ends it
	stop     context.CancelCauseFunc
	handlers sync.WaitGroup

	mu      sync.Mutex
	handled []uint64 // the sequences that were handled last, remembered to twice as many
}

// remembered is how many handled messages a successor gets to know of, if they are above the acknowledgement floor.
const remembered = 4096

// start begins a run for a partition whose record has no owner that is there.
func (m *member) start(ctx context.Context, n int, record ownerRecord) *run {
	r := &run{member: m, partition: n, record: record, handled: slices.Clone(record.Done)}
	r.ctx, r.stop = context.WithCancelCause(context.WithoutCancel(ctx))
	go func() {
		r.err = r.own()
		r.stop(nil)
		m.ended <- r
	}()
	return r
}

// own takes the partition, consumes it until the run is stopped, and releases it. It takes nothing where the record has changed
// meanwhile. The record may be this member's already, where the answer to a write was lost; it may also be out of date, so it is written
// in any case.
func (r *run) own() (err error) {
	key := fmt.Sprint(ownerPrefix, r.partition)
	request, cancel := r.deadline(r.ctx)
	rev, err := r.table.Update(request, key, encode(ownerRecord{Member: r.options.name, Incarnation: r.Incarnation}), r.record.rev)
	cancel()
	if err != nil {
		r.pause = retryPause
		slog.Debug("partition: cannot take a partition yet", "partition", r.partition, "error", err)
		return nil // it is tried again
	}
	r.counts.owned.Add(1)
	r.counts.assigned.Add(1)
	why := "it had no owner"
	switch {
	case r.record.Member != "" && r.record.Incarnation != r.Incarnation:
		r.counts.takeovers.Add(1)
		why = fmt.Sprintf("member %s is gone without releasing it", r.record.Member)
	case r.record.ReleasedBy != "":
		why = fmt.Sprintf("member %s released it", r.record.ReleasedBy)
	}
	r.options.onAssign(r.partition, why)
	floor, err := r.work()
	r.stop(err)
	r.counts.owned.Add(-1)
	r.counts.revoked.Add(1)
	r.options.onRevoke(r.partition, context.Cause(r.ctx).Error())
	r.release(key, rev, floor)
	return err
}

// work consumes until the run is stopped and the last handler has returned. A consumer that is not there is an error only when it stays
// away for the TTL: a server that has just started may not know it yet.
func (r *run) work() (floor uint64, err error) {
	for there := time.Now(); r.ctx.Err() == nil; pause(r.ctx) {
		floor, err = r.handleAll()
		r.handlers.Wait() // also for those that ignore the end of their DrainTimeout
		gone := errors.Is(err, jetstream.ErrConsumerNotFound) || errors.Is(err, jetstream.ErrStreamNotFound) || errors.Is(err, jetpull.ErrConsumerDeleted)
		if !gone {
			there = time.Now() // or not known to be missing
		}
		switch {
		case r.ctx.Err() != nil:
			return floor, nil //nolint:nilerr // stopped: what ended the handling does not count
		case errors.Is(err, jetpull.ErrInvalidOption), errors.Is(err, jetpull.ErrClosed), time.Since(there) > r.ttl:
			return floor, fmt.Errorf("partition %d: %w", r.partition, err)
		}
		slog.Debug("partition: consuming again", "partition", r.partition, "error", err)
	}
	return floor, nil
}

// handleAll handles messages, but those that a predecessor, or this run, has handled before the consumer was reset.
func (r *run) handleAll() (floor uint64, err error) {
	done := make(map[uint64]bool, len(r.handled))
	for _, seq := range r.handled {
		done[seq] = true
	}
	return r.consume(r.ctx, r.partition, func(ctx context.Context, msg *jetpull.Msg) error {
		switch {
		case done[msg.Sequence()]:
			return nil
		case !r.lease.valid():
			return jetpull.Retry(time.Second, ErrMembershipLost)
		}
		return r.handle(ctx, msg)
	})
}

// handle runs the handler. Its context ends with the membership.
func (r *run) handle(ctx context.Context, msg *jetpull.Msg) error {
	r.handlers.Add(1)
	defer r.handlers.Done()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(r.lease.lost, func() { cancel(ErrMembershipLost) })()
	err := r.handler(ctx, msg)
	if err == nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		if len(r.handled) >= 2*remembered {
			r.handled = slices.Delete(r.handled, 0, remembered)
		}
		r.handled = append(r.handled, msg.Sequence())
	}
	return err
}

// release gives the partition up, unless the membership is lost. The record has what was handled above the acknowledgement floor; without it
// the next owner repeats that.
func (r *run) release(key string, rev, floor uint64) {
	done := slices.DeleteFunc(r.handled, func(seq uint64) bool { return seq <= floor })
	record := encode(ownerRecord{ReleasedBy: r.options.name, Done: done})
	for r.lease.valid() {
		request, cancel := r.deadline(r.ctx)
		_, err := r.table.Update(request, key, record, rev)
		cancel()
		if err == nil || errors.Is(err, jetstream.ErrKeyRevisionMismatch) { // it got through before
			return
		}
		slog.Debug("partition: cannot release a partition yet", "partition", r.partition, "error", err)
		pause(r.lease.lost)
	}
}
