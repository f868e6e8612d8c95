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
	// ErrMembershipLost is the cause with which the contexts of handlers end if this member stored no heartbeat within the TTL,
	// because its process was stopped or the server could not be reached.
	ErrMembershipLost = errors.New("partition: membership lost: no heartbeat was stored within the TTL")
	// ErrMemberInUse says that another member of the set has the same name.
	ErrMemberInUse = errors.New("partition: member name in use")
)

const (
	heartbeats = 3                      // are sent within the TTL
	retryPause = 100 * time.Millisecond // before a request that failed is repeated
)

// member is one call of Consume. The goroutine of that call owns the fields of the second group. Each run has a goroutine of
// its own, which it waits for, and reads the first group.
type member struct {
	table   table
	consume func(ctx context.Context, partition int, h jetpull.Handler) (floor uint64, err error)
	options options
	handler jetpull.Handler
	ttl     time.Duration
	counts  *counts
	memberRecord
	lease *lease
	ended chan *run // a place for each partition

	view *view
	rev  uint64 // of this member's key; 0 before it has one
	runs map[int]*run
}

// lease is how long this member may begin handlers.
type lease struct {
	until atomic.Pointer[time.Time]
	timer *time.Timer
	lost  context.Context // ends with the lease
}

func newLease() *lease {
	lost, lose := context.WithCancelCause(context.Background())
	l := &lease{lost: lost, timer: time.AfterFunc(time.Hour, func() { lose(ErrMembershipLost) })}
	l.until.Store(&time.Time{})
	return l
}

func (l *lease) valid() bool { return l.lost.Err() == nil && time.Now().Before(*l.until.Load()) }

// extend is called when a heartbeat that was sent at a time has been stored. Other members wait for the whole TTL.
func (l *lease) extend(sent time.Time, ttl time.Duration) {
	until := sent.Add(ttl * 9 / 10)
	l.until.Store(&until)
	l.timer.Reset(time.Until(until))
}

// run joins the set, and joins it again when the membership was lost.
func (m *member) run(ctx context.Context) error {
	for ctx.Err() == nil {
		err := m.join(ctx)
		if !errors.Is(err, ErrMembershipLost) {
			return err
		}
		m.counts.lost.Add(1)
		slog.Warn("partition: joining again", "member", m.options.name, "error", err)
		pause(ctx)
	}
	return nil
}

func pause(ctx context.Context) {
	select {
	case <-time.After(retryPause):
	case <-ctx.Done():
	}
}

// join makes this process a member until ctx ends or the membership is lost. When it returns, no handler runs.
func (m *member) join(ctx context.Context) error {
	m.memberRecord = memberRecord{Incarnation: nuid.Next(), TTL: m.ttl}
	m.lease, m.rev, m.runs, m.view = newLease(), 0, make(map[int]*run), newView(len(m.view.owners))
	defer m.lease.timer.Stop()
	w, err := m.table.WatchAll(ctx)
	for ; err != nil; w, err = m.table.WatchAll(ctx) {
		if ctx.Err() != nil {
			return nil
		}
		if isGone(err) {
			return fmt.Errorf("partition: watch the bucket: %w", err)
		}
		slog.Warn("partition: cannot watch the bucket yet", "member", m.options.name, "error", err)
		pause(ctx)
	}
	defer func() { _ = w.Stop() }()
	err = m.follow(ctx, w.Updates())
	if m.rev > 0 {
		ctx, cancel := m.deadline(ctx)
		defer cancel()
		if failed := m.table.remove(ctx, m.key(), m.rev); failed != nil {
			slog.Debug("partition: this member's key could not be deleted; another member does, after the TTL", "member", m.options.name, "error", failed)
		}
	}
	return err
}

func (m *member) key() string { return memberPrefix + m.options.name }

// deadline bounds requests, which go through also where ctx has ended.
func (m *member) deadline(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), m.ttl/heartbeats)
}

// follow keeps the member's key and its runs until ctx or the membership ends, and all runs have ended.
func (m *member) follow(ctx context.Context, entries <-chan jetstream.KeyValueEntry) (err error) {
	beat := time.NewTicker(m.ttl / heartbeats)
	defer beat.Stop()
	again := time.NewTimer(m.ttl) // for the next look at the assignment
	defer again.Stop()
	done, lost, synced := ctx.Done(), m.lease.lost.Done(), false
	leave := func(why, failed error) {
		err = errors.Join(err, failed)
		done, entries, lost, synced = nil, nil, nil, false
		for _, r := range m.runs {
			r.stop(why)
		}
	}
	for done != nil || len(m.runs) > 0 {
		select {
		case <-done:
			leave(errLeaves, nil)
		case <-lost:
			leave(ErrMembershipLost, ErrMembershipLost)
		case e, ok := <-entries:
			switch {
			case !ok && ctx.Err() == nil:
				leave(errWatchEnded, errWatchEnded)
			case !ok:
				leave(errLeaves, nil)
			case e == nil:
				synced = true
			default:
				if bad := m.take(e); bad != nil {
					leave(errLeaves, bad)
				}
			}
			again.Reset(0)
		case <-beat.C:
			m.heartbeat(ctx)
		case r := <-m.ended:
			delete(m.runs, r.partition)
			if r.err != nil {
				leave(errLeaves, r.err)
			}
			again.Reset(r.pause)
		case <-again.C:
			if synced {
				again.Reset(m.balance(ctx))
			}
		}
	}
	return err
}

var errLeaves = errors.New("this member leaves")

// take applies an entry. This member's own may show a write whose answer was lost.
func (m *member) take(e jetstream.KeyValueEntry) error {
	if err := m.view.apply(e); err != nil {
		return err
	}
	switch own := m.view.members[m.options.name]; {
	case own == nil || e.Key() != m.key():
	case own.Incarnation == m.Incarnation:
		m.rev = max(m.rev, own.rev)
	case own.renewed:
		return fmt.Errorf("%w: the key of %q got a heartbeat of another process; give each process its own name", ErrMemberInUse, m.options.name)
	}
	return nil
}

// heartbeat renews the member's key. If no heartbeat is stored, the lease ends by itself. A deleted key is not created again,
// because another member may have taken over.
func (m *member) heartbeat(ctx context.Context) {
	if m.rev == 0 || m.lease.lost.Err() != nil {
		return
	}
	ctx, cancel := m.deadline(ctx)
	defer cancel()
	sent := time.Now()
	rev, err := m.table.Update(ctx, m.key(), encode(m.memberRecord), m.rev)
	if err != nil {
		slog.Debug("partition: heartbeat failed", "member", m.options.name, "error", err)
		return
	}
	m.rev = rev
	m.lease.extend(sent, m.ttl)
}

// balance deletes the keys of members that are silent, creates this member's, and starts and stops runs as the assignment wants it. It
// returns after which time to call it again, if nothing happens before.
func (m *member) balance(ctx context.Context) (next time.Duration) {
	request, cancel := m.deadline(ctx)
	defer cancel()
	now, next := time.Now(), m.ttl
	retry := func(what string, err error) {
		slog.Debug("partition: a request is tried again", "member", m.options.name, "request", what, "error", err)
		next = retryPause
	}
	names := make([]string, 0, len(m.view.members))
	for name, other := range m.view.members {
		names = append(names, name)
		if silent := other.seen.Add(other.TTL); silent.After(now) {
			next = min(next, silent.Sub(now))
		} else if other.Incarnation != m.Incarnation {
			// Nothing but the last heartbeat can have this revision. So its sender's lease is over, whatever has arrived here how late.
			if err := m.table.remove(request, memberPrefix+name, other.rev); err != nil {
				retry("delete the key of a member that is silent", err)
			}
		}
	}
	if m.rev == 0 && m.view.members[m.options.name] == nil {
		rev, err := m.table.Create(request, m.key(), encode(m.memberRecord))
		if err != nil {
			retry("join", err)
			return next
		}
		m.rev = rev
		m.lease.extend(now, m.ttl)
	}
	if !m.lease.valid() {
		return next
	}
	owners := make([]string, len(m.view.owners))
	for n := range owners {
		owners[n] = m.view.owner(n)
	}
	for n, target := range assign(owners, names) {
		r, mine := m.runs[n], target == m.options.name
		switch {
		case r == nil && (mine && owners[n] == "" || owners[n] == m.options.name): // its own without a run: an answer was lost
			m.runs[n] = m.start(ctx, n, m.view.owners[n])
		case r != nil && !mine:
			r.stop(fmt.Errorf("it goes to member %s", target))
		}
	}
	return next
}
