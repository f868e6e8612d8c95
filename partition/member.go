package partition

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"github.com/jetpull/jetpull"
)

// The errors of a member, for use with [errors.Is].
var (
	// ErrMembershipLost is the cause with which the contexts of handlers end when this member did not renew its key in time: its
	// process was stopped, or the server could not be reached, for the TTL.
	ErrMembershipLost = errors.New("partition: membership lost: no heartbeat was stored within the TTL")
	// ErrMemberInUse says that another member of the set has the same name.
	ErrMemberInUse = errors.New("partition: member name in use")
)

// heartbeats is how many heartbeats are sent within the TTL.
const heartbeats = 3

// member is one call of Consume. The goroutine of that call owns the fields of the second group. Each run has a goroutine of
// its own, which it waits for, and reads the first group.
type member struct {
	table   table
	queues  queues
	options options
	handler jetpull.Handler
	ttl     time.Duration
	counts  *counts
	memberRecord
	lease   *lease
	leaving chan struct{} // closed when all runs are stopped
	ended   chan *run     // a place for each partition

	view *view
	rev  uint64 // of this member's key
	runs map[int]*run
}

// lease is how long this member may begin handlers.
type lease struct {
	until atomic.Pointer[time.Time]
	timer *time.Timer
	lost  context.Context // ends with the lease
}

func (l *lease) valid() bool { return time.Now().Before(*l.until.Load()) }

// extend is called when a heartbeat that was sent at a time has been stored. Other members wait for the whole TTL.
func (l *lease) extend(sent time.Time, ttl time.Duration) {
	until := sent.Add(ttl * 9 / 10)
	l.until.Store(&until)
	l.timer.Reset(time.Until(until))
}

// consume joins the set, and joins it again when the membership was lost or the server could not be asked.
func (m *member) consume(ctx context.Context) error {
	for ctx.Err() == nil {
		err := m.join(ctx)
		if errors.Is(err, ErrMembershipLost) {
			m.counts.lost.Add(1)
		}
		again := errors.Is(err, ErrMembershipLost) || errors.Is(err, errCannotJoin) || errors.Is(err, context.Canceled)
		if !again || errors.Is(err, jetpull.ErrDrainTimeout) {
			return err
		}
		if ctx.Err() != nil {
			return nil //nolint:nilerr // joining again, which failed or was to come, does not matter now
		}
		slog.Warn("partition: joining again", "member", m.options.name, "error", err)
		select {
		case <-time.After(retryPause):
		case <-ctx.Done():
		}
	}
	return nil
}

// errCannotJoin is an error for which joining is tried again.
var errCannotJoin = errors.New("partition: cannot join")

// join makes this process a member until ctx ends or the membership is lost.
func (m *member) join(ctx context.Context) error {
	lost, lose := context.WithCancelCause(context.WithoutCancel(ctx))
	defer lose(nil)
	m.memberRecord = memberRecord{Incarnation: nuid.Next(), TTL: m.ttl}
	m.lease = &lease{lost: lost, timer: time.AfterFunc(time.Hour, func() { lose(ErrMembershipLost) })}
	defer m.lease.timer.Stop()
	m.runs, m.leaving, m.view = make(map[int]*run), make(chan struct{}), newView(len(m.view.owners))
	w, err := m.table.watch(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = w.Stop() }()
	if err := m.enter(ctx); err != nil {
		return err
	}
	err = m.follow(ctx, w.Updates())
	if cause := context.Cause(lost); cause != nil {
		return errors.Join(cause, err)
	}
	leave, cancel := context.WithTimeout(context.WithoutCancel(ctx), m.ttl)
	defer cancel()
	if failed := m.table.remove(leave, memberPrefix+m.options.name, m.rev); failed != nil {
		slog.Warn("partition: this member's key could not be deleted; it expires", "member", m.options.name, "ttl", m.ttl, "error", failed)
	}
	return err
}

// enter creates the key of this member. It waits for the key of an earlier process with the same name to expire, and fails if that
// key gets a heartbeat.
func (m *member) enter(ctx context.Context) error {
	key, seen := memberPrefix+m.options.name, uint64(0)
	for {
		sent := time.Now()
		rev, err := m.table.create(ctx, key, m.memberRecord, m.ttl)
		if err == nil {
			m.rev = rev
			m.lease.extend(sent, m.ttl)
			return nil
		}
		if !errors.Is(err, jetstream.ErrKeyExists) {
			return fmt.Errorf("%w: %w", errCannotJoin, err)
		}
		if e, err := m.table.get(ctx, key); err == nil { // or else it has just expired, or is not known
			if seen != 0 && e.Revision() > seen {
				return fmt.Errorf("%w: the key of %q got a heartbeat while this process waited for the name; give each process its own", ErrMemberInUse, m.options.name)
			}
			seen = e.Revision()
		}
		select {
		case <-time.After(m.ttl / heartbeats / 2):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// follow keeps the member's key and its runs until ctx ends, or the membership, and all runs have ended.
func (m *member) follow(ctx context.Context, entries <-chan jetstream.KeyValueEntry) (err error) {
	beat := time.NewTicker(m.ttl / heartbeats)
	defer beat.Stop()
	again := time.NewTimer(m.ttl) // for the next look at the assignment
	defer again.Stop()
	done, lost, synced := ctx.Done(), m.lease.lost.Done(), false
	leave := func(cause error) {
		err = errors.Join(err, cause)
		if done != nil {
			done, entries = nil, nil
			close(m.leaving)
			for _, r := range m.runs {
				r.stop()
			}
		}
	}
	for done != nil || len(m.runs) > 0 {
		select {
		case <-done:
			leave(nil)
		case <-lost:
			lost = nil
			leave(nil)
		case e, ok := <-entries:
			switch {
			case !ok && ctx.Err() == nil:
				leave(errWatchEnded)
				continue
			case !ok:
				leave(nil)
				continue
			case e == nil:
				synced = true
			default:
				if bad := m.take(e); bad != nil {
					leave(bad)
				}
			}
			if synced {
				again.Reset(0)
			}
		case <-beat.C:
			m.heartbeat(ctx)
		case r := <-m.ended:
			delete(m.runs, r.partition)
			if r.err != nil {
				leave(r.err)
			}
			again.Reset(r.pause)
		case <-again.C:
			if done != nil && synced {
				if next := m.balance(ctx); !next.IsZero() {
					again.Reset(time.Until(next))
				}
			}
		}
	}
	return err
}

// take applies an entry. This member's own may show a heartbeat whose answer was lost.
func (m *member) take(e jetstream.KeyValueEntry) error {
	if err := m.view.apply(e); err != nil {
		return err
	}
	own := m.view.members[m.options.name]
	if own != nil && own.Incarnation == m.Incarnation && e.Key() == memberPrefix+m.options.name && !own.expired {
		m.rev = max(m.rev, e.Revision())
	}
	return nil
}

// heartbeat renews the member's key. Where none gets through, the lease ends by itself. A key that has expired is not created again,
// because another member may have taken over.
func (m *member) heartbeat(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), m.ttl/heartbeats)
	defer cancel()
	sent := time.Now()
	if rev, err := m.table.put(ctx, memberPrefix+m.options.name, m.memberRecord, m.rev, m.ttl); err != nil {
		slog.Debug("partition: heartbeat failed", "member", m.options.name, "error", err)
	} else if m.lease.lost.Err() == nil {
		m.rev = rev
		m.lease.extend(sent, m.ttl)
	}
}

// balance starts and stops runs as the assignment wants it. It returns when to call it again, if that is before the next event.
func (m *member) balance(ctx context.Context) (next time.Time) {
	names, next := m.view.names(time.Now())
	owners := make([]string, len(m.view.owners))
	for n := range owners {
		owners[n] = m.view.owner(n)
	}
	for n, target := range assign(owners, names) {
		r, mine := m.runs[n], target == m.options.name
		if r == nil && (mine && owners[n] == "" || owners[n] == m.options.name) {
			r = m.start(ctx, n, m.view.owners[n])
			m.runs[n] = r
		}
		if r != nil && !mine { // or the release of a run that ended did not get through
			r.reason.Store("it goes to member " + target)
			r.stop()
		}
	}
	return next
}
