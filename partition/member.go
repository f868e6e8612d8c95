package partition

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/internal/lease"
	"github.com/jetpull/jetpull/internal/stored"
)

// ErrMembershipLost is the cause with which the contexts of handlers end when this member has lost its membership: it stored no heartbeat within the
// TTL, because its process was stopped or the server could not be reached, or the set's record no longer names it. It is for use with [errors.Is].
var ErrMembershipLost = errors.New("partition: membership lost")

const (
	heartbeats = 3                      // heartbeats within the TTL
	retryPause = 100 * time.Millisecond // pause before a failed request is repeated
	together   = 2 * time.Millisecond   // roughly the duration of a write of the record
)

// member is a call of Consume. The goroutine of that call owns the fields from the second group on. The third group is the membership, and is reset
// when the membership was lost. Each run has a goroutine, which the member waits for.
type member struct {
	set      *Set
	table    table
	consumer func(partition int) consumer
	options  options
	handler  jetpull.Handler
	log      *slog.Logger
	clock    func() lease.Moment
	ended    chan *run
	hints    chan hint

	known   lease.Moment // when the bucket was last read
	leaving bool
	left    lease.Moment // since when this member leaves
	err     error        // why it leaves
	refused uint         // refused writes of the record in a row
	runs    map[int]*run
	before  map[int]owner // the last owner of each partition that this member takes

	id     string       // the member's name, and a unique suffix
	former string       // the ID of the previous membership, whose handlers have all returned
	lease  *lease.Lease // begins when the member has joined
	joined bool
	beats  uint64       // heartbeats that were sent
	sent   lease.Moment // when the last stored heartbeat was sent
	seen   map[string]sighting
}

// hint is a write to the bucket, as the subscription received it.
type hint struct{ key, value string }

// sighting is the last known heartbeat of another membership: the value of its key, and since when this process has known of no newer value.
type sighting struct {
	beat string
	at   time.Duration // by the monotonic clock
}

const (
	overwritten = "0"      // the value that marks a member as gone
	unseen      = "unseen" // not a heartbeat: the key has not been read
)

func newMember(s *Set, o options, h jetpull.Handler) *member {
	return &member{
		set: s, table: s, options: o, handler: h, clock: lease.Now, log: o.logger.With("set", s.cfg.Name, "member", o.name),
		ended: make(chan *run, s.cfg.Partitions), hints: make(chan hint, 256), runs: map[int]*run{},
		before: map[int]owner{}, consumer: func(n int) consumer { return &session{set: s, name: s.consumer(n), opts: o} },
	}
}

// begin begins a membership. If it follows a lost one, the next write removes that from the record, even if this member leaves.
func (m *member) begin(ctx context.Context) {
	m.former, m.id = m.id, m.options.name+"."+nuid.Next()
	m.joined, m.beats, m.sent, m.seen = false, 0, lease.Moment{}, map[string]sighting{} // it joins after its first heartbeat
	over := fmt.Errorf("%w: no heartbeat was stored within the TTL", ErrMembershipLost)
	m.lease = lease.New(context.WithoutCancel(ctx), m.clock, m.set.cfg.TTL, over) // handlers see the values of ctx
}

// hear receives the writes of all processes to the bucket. A write is only a hint: it can be lost, and the server may have refused it.
func (m *member) hear(key string, value []byte) {
	select {
	case m.hints <- hint{key, string(value)}:
	default:
	}
}

// run is the loop of the member. It returns when the member has left and all handlers have returned.
func (m *member) run(ctx context.Context) error {
	m.known = m.clock()
	m.begin(ctx)
	look, soon := time.NewTimer(0), true
	defer look.Stop()
	for done := ctx.Done(); ; {
		select {
		case <-done:
			done = nil
			m.leave(nil)
		case h := <-m.hints:
			if h.key != recordKey { // a heartbeat, stored or not: it was sent before now
				if w, ok := m.seen[h.key]; ok && w.beat != h.value {
					m.seen[h.key] = sighting{h.value, m.clock().Mono}
				}
				continue
			}
		case r := <-m.ended:
			delete(m.runs, r.partition)
			if r.err != nil {
				m.leave(r.err)
			}
		case <-look.C:
			next, done := m.look(ctx)
			switch over := m.joined && !m.lease.Valid(); {
			case len(m.runs) > 0:
			case over && m.err == nil && errors.Is(context.Cause(m.lease), ErrMembershipLost):
				m.set.count(func(c *Stats) { c.Lost++ })
				m.begin(ctx)
				next = 0
			// After the TTL, others have removed the membership that this member could not remove.
			case over, !m.joined && m.leaving && (done || m.err != nil || m.clock().Since(m.left) >= m.set.cfg.TTL):
				return m.err
			}
			look.Reset(max(next, together))
			soon = m.refused > 0
			continue
		}
		if !soon {
			look.Reset(m.spread())
		}
		soon = true
	}
}

func (m *member) leave(why error) {
	if !m.leaving {
		m.leaving, m.left = true, m.clock()
	}
	m.err = errors.Join(m.err, why)
	for _, r := range m.runs {
		r.stop(errors.New("this member leaves"))
	}
}

// look sends a heartbeat if one is due, reads the record, applies this member's changes to it, and starts and stops runs. If the record cannot be
// read, or another member changes it meanwhile, look does not write it. It returns when to look next, and whether the record is up to date.
func (m *member) look(parent context.Context) (next time.Duration, done bool) {
	if m.joined && !m.lease.Valid() {
		return retryPause, false
	}
	if m.joined || !m.leaving {
		m.beat(parent)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(parent), m.set.cfg.TTL/heartbeats)
	defer cancel()
	r, err := load(ctx, m.table, m.set.cfg.Partitions)
	if err == nil && !m.joined && !m.leaving { // it may have been changed while this member was cut off
		err = m.table.current(ctx)
	}
	if err != nil {
		m.log.Debug("partition: the bucket cannot be read", "error", err)
		// A server that has just started may not know the stream yet.
		missing := errors.Is(err, jetstream.ErrStreamNotFound) && m.clock().Mono-m.known.Mono >= m.set.cfg.TTL
		if missing || errors.Is(err, nats.ErrConnectionClosed) || errors.Is(err, jetpull.ErrInvalidOption) {
			m.lease.End(fmt.Errorf("%w: the bucket is gone", ErrMembershipLost))
			m.leave(fmt.Errorf("partition: the bucket was deleted, the set was changed, or the connection is closed: %w", err))
		}
		return retryPause, false
	}
	m.known = m.clock()
	if r.bad != nil {
		m.log.Warn("partition: its partitions have no owner for the TTL", "error", r.bad)
	}
	if m.joined {
		if _, named := r.Members[m.id]; !named {
			m.lease.End(fmt.Errorf("%w: the record of the set does not name this member", ErrMembershipLost))
		}
		if !m.lease.Valid() { // even if a heartbeat was stored: a lease that has ended is not extended
			return retryPause, false
		}
		m.lease.Extend(m.sent)
	}
	removed, next := m.remove(ctx, r)
	starts, changed := m.change(r)
	if changed || removed {
		if err := m.table.write(ctx, recordKey, r, r.revision); err != nil {
			m.log.Debug("partition: the record is changed again", "error", err)
			if m.refused++; errors.Is(err, stored.ErrConflict) {
				return m.spread(), false
			}
			return retryPause, false
		}
	}
	m.refused = 0
	if _, in := r.Members[m.id]; in {
		m.joined = true
		m.lease.Extend(m.sent)
	} else if m.joined {
		m.lease.End(nil)
	}
	for _, n := range starts {
		m.start(n)
	}
	return next, true
}

// spread returns a random delay, so that members do not write at the same time: all but one of them would be refused. It grows with each refusal.
func (m *member) spread() time.Duration {
	return time.Duration(rand.Int64N(int64(together) * int64(1+len(m.seen)) << min(m.refused, 4)))
}

// beat stores a heartbeat, if one is due.
func (m *member) beat(parent context.Context) {
	if m.beats > 0 && m.clock().Since(m.sent) < m.set.cfg.TTL/heartbeats {
		return
	}
	// A separate timeout: if the bucket is gone, a write gets no answer, not even "no responders", because members subscribe to its subject.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(parent), m.set.cfg.TTL/heartbeats)
	defer cancel()
	sent := m.clock()
	m.beats++
	if m.table.write(ctx, memberKey+m.id, m.beats, anyRevision) == nil {
		m.sent = sent
	}
}

// remove removes members that are gone from the record, and returns the time until the next look. A member is gone if this process has known of no
// newer heartbeat for the TTL, and has then overwritten the last one by compare-and-swap, so no newer one was stored. If another process has written
// the value, it must stay for the TTL too.
func (m *member) remove(ctx context.Context, r *record) (removed bool, next time.Duration) {
	ttl, seen := m.set.cfg.TTL, map[string]sighting{}
	next = max(retryPause/4, ttl/heartbeats-m.clock().Since(m.sent))
	_, removed = r.Members[m.former]
	delete(r.Members, m.former)
	for id := range r.Members {
		if id == m.id {
			continue
		}
		key, now := memberKey+id, m.clock().Mono
		w, ok := m.seen[key]
		if !ok {
			w = sighting{unseen, now - ttl}
		}
		if now-w.at >= ttl {
			value, err := m.table.read(ctx, key)
			switch {
			case err != nil:
			case w.beat != string(value.Data):
				w = sighting{string(value.Data), m.clock().Mono}
			case m.table.write(ctx, key, 0, value.Sequence) == nil:
				delete(r.Members, id)
				removed, w.beat = true, overwritten
			}
		}
		seen[key] = w
		next = min(next, cmp.Or(max(0, ttl-(now-w.at)), retryPause))
	}
	m.seen = seen
	return removed, next
}

// change applies this member's changes to the record, and stops runs. It returns the partitions whose runs start when the record is stored.
func (m *member) change(r *record) (starts []int, changed bool) {
	leaves, in := r.Members[m.id]
	if !in && (m.leaving || m.clock().Since(m.sent) >= m.set.cfg.TTL/2) {
		return nil, false
	}
	changed = !in || leaves != m.leaving
	r.Members[m.id] = m.leaving
	for n, target := range r.targets() {
		o, run, id := &r.Owners[n], m.runs[n], r.owner(n)
		switch {
		case run != nil && id != m.id: // even if the lease is valid
			m.lease.End(fmt.Errorf("%w: the record of the set gives partition %d to %q", ErrMembershipLost, n, nameOf(id)))
			return nil, false
		case run != nil && target != m.id:
			run.stop(fmt.Errorf("it goes to member %s", nameOf(target)))
		case run == nil && target == m.id && (id == "" || id == m.id):
			if id == "" { // otherwise the answer to the write that took it was lost
				m.before[n] = *o
			}
			starts = append(starts, n)
			*o, changed = owner{ID: m.id, Since: time.Now().UnixMilli()}, true
		case run == nil && id == m.id:
			o.Released, changed = true, true
		}
	}
	if m.leaving && len(m.runs) == 0 {
		delete(r.Members, m.id)
		changed = true
	}
	return starts, changed
}
