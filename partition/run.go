package partition

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull"
)

// queues are the consumers of a set's partitions.
type queues interface {
	// clear takes the pin from the client that has it. Then it has the consumer deliver again, from its acknowledgement floor, if
	// anything that was delivered is not acknowledged: what was handed back would otherwise come in the order in which that was done.
	clear(ctx context.Context, partition int) error
	// floor is the acknowledgement floor.
	floor(ctx context.Context, partition int) (seq uint64, pending bool, err error)
	// consume handles messages until ctx ends, and returns when all that was not handled has been handed back. It returns errMissed
	// where a delivery was lost, before it handles one that came later.
	consume(ctx context.Context, partition int, h jetpull.Handler) error
}

// errMissed says that the consumer has to be cleared, for it to deliver in order again.
var errMissed = errors.New("partition: a delivery was lost")

// run is a partition while this member owns it, or tries to. It has a goroutine, which the member waits for.
type run struct {
	*member
	partition int
	record    ownerRecord   // that this member's replaces
	err       error         // why the member must end; set before the run goes to ended, as pause is
	pause     time.Duration // before it is tried again

	ctx      context.Context // of pulling; stop ends it
	stop     context.CancelFunc
	reason   atomic.Value // string: why it was stopped
	handlers sync.WaitGroup

	mu      sync.Mutex
	handled []uint64 // the sequences that were handled last, remembered to twice as many
}

// remembered is how many handled messages a successor gets to know of, if they are above the acknowledgement floor.
const remembered = 4096

// start begins a run for a partition whose record has no owner that is there.
func (m *member) start(ctx context.Context, n int, record ownerRecord) *run {
	r := &run{member: m, partition: n, record: record, handled: slices.Clone(record.Done)}
	r.reason.Store("this member leaves")
	r.ctx, r.stop = context.WithCancel(context.WithoutCancel(ctx))
	go func() {
		r.err = r.own()
		r.stop()
		m.ended <- r
	}()
	return r
}

// own takes the partition, consumes it until the run is stopped, and releases it. It takes nothing where the record has changed
// meanwhile. The record may be this member's already, where the answer to a write was lost; it may also be out of date, so it is written
// in any case.
func (r *run) own() error {
	key := fmt.Sprint(ownerPrefix, r.partition)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.ctx), r.ttl)
	defer cancel()
	rev, err := r.table.put(ctx, key, ownerRecord{Member: r.options.name, Incarnation: r.Incarnation}, r.record.rev, 0)
	if err != nil {
		if r.pause = retryPause; !conflicts(err) {
			slog.Debug("partition: cannot take a partition yet", "partition", r.partition, "error", err)
		}
		return nil
	}
	if r.ctx.Err() != nil {
		r.release(key, rev)
		return nil
	}
	r.counts.owned.Add(1)
	r.counts.assigned.Add(1)
	why := "it had no owner"
	switch {
	case r.record.Member != "":
		r.counts.takeovers.Add(1)
		why = fmt.Sprintf("member %s is gone without releasing it", r.record.Member)
	case r.record.ReleasedBy != "":
		why = fmt.Sprintf("member %s released it", r.record.ReleasedBy)
	}
	r.options.onAssign(r.partition, why)
	err = r.work()
	drained := !errors.Is(err, jetpull.ErrDrainTimeout) || r.outlast()
	r.counts.owned.Add(-1)
	r.counts.revoked.Add(1)
	if !drained {
		return err // others wait for this member's key to expire
	}
	if r.lease.lost.Err() != nil {
		r.reason.Store(ErrMembershipLost.Error())
	}
	r.options.onRevoke(r.partition, r.reason.Load().(string))
	if r.lease.valid() {
		r.release(key, rev)
	}
	if errors.Is(err, jetpull.ErrDrainTimeout) {
		return nil // late, and done
	}
	return err
}

// retryPause is between two tries to take a partition.
const retryPause = 100 * time.Millisecond

// work consumes until the run is stopped. A consumer that is not there is an error only when it stays away for the TTL: a server that has
// just started may not know it yet.
func (r *run) work() error {
	var missing time.Time
	for r.ctx.Err() == nil {
		err := r.queues.clear(r.ctx, r.partition)
		cleared := err == nil
		if cleared {
			err = r.consume()
		}
		switch gone := notFound(err); {
		case err == nil:
			return nil
		case errors.Is(err, errMissed):
			continue
		case !gone && cleared, gone && !missing.IsZero() && time.Since(missing) > r.ttl:
			return fmt.Errorf("partition %d: %w", r.partition, err)
		case !gone:
			missing = time.Time{}
		case missing.IsZero():
			missing = time.Now()
		}
		slog.Debug("partition: cannot begin yet", "partition", r.partition, "error", err)
		select {
		case <-time.After(retryPause):
		case <-r.ctx.Done():
		}
	}
	return nil
}

// consume handles messages, but those that a predecessor, or this run, has handled before the consumer was cleared.
func (r *run) consume() error {
	done := make(map[uint64]bool, len(r.handled))
	for _, seq := range r.handled {
		done[seq] = true
	}
	return r.queues.consume(r.ctx, r.partition, func(ctx context.Context, msg *jetpull.Msg) error {
		switch {
		case done[msg.Sequence()]:
			return nil
		case !r.lease.valid():
			return jetpull.Retry(time.Second, ErrMembershipLost)
		}
		return r.handle(ctx, msg)
	})
}

func notFound(err error) bool {
	return errors.Is(err, jetstream.ErrConsumerNotFound) || errors.Is(err, jetstream.ErrStreamNotFound) || errors.Is(err, jetpull.ErrConsumerDeleted)
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
		r.remember(msg.Sequence())
	}
	return err
}

func (r *run) remember(seq uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.handled) >= 2*remembered {
		r.handled = append(r.handled[:0], r.handled[remembered:]...)
	}
	r.handled = append(r.handled, seq)
}

// outlast waits for handlers that the drain of their Consume did not wait for. It gives up where this member leaves.
func (r *run) outlast() bool {
	idle := make(chan struct{})
	go func() { // until the last handler returns, which nothing can force
		r.handlers.Wait()
		close(idle)
	}()
	select {
	case <-idle:
		return true
	case <-r.leaving:
		return false
	}
}

// release gives the partition up. The record has what was handled above the acknowledgement floor; without it the next owner
// repeats that. A release that fails is repeated, while this member is there.
func (r *run) release(key string, rev uint64) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.ctx), r.ttl)
	defer cancel()
	record := ownerRecord{ReleasedBy: r.options.name}
	floor, _, err := r.queues.floor(ctx, r.partition)
	for _, seq := range r.handled { // also where nothing is pending: a reset may have forgotten what this run has not seen again
		if seq > floor {
			record.Done = append(record.Done, seq)
		}
	}
	if err == nil {
		_, err = r.table.put(ctx, key, record, rev, 0)
	}
	if err != nil {
		r.pause = retryPause
		slog.Debug("partition: could not release", "partition", r.partition, "error", err)
	}
}
