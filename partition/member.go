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

// ErrMembershipLost is the cause with which the contexts of handlers end if this member stored no heartbeat within the TTL, because its process was
// stopped or the server could not be reached, or if the set's record no longer names it. It is for use with [errors.Is].
var ErrMembershipLost = errors.New("partition: membership lost")

const (
	heartbeats = 3                      // are sent within the TTL
	retryPause = 100 * time.Millisecond // before a request that failed is repeated
	together   = 2 * time.Millisecond   // how long a write of the record takes, more or less
)

// member is a call of Consume. The goroutine of that call owns the fields from the second group on. A membership, the third group, begins anew when
// it was lost. Each run has a goroutine, which the member waits for.
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

	known   lease.Moment // when the bucket was read last
	leaving bool
	left    lease.Moment // since when this member leaves
	err     error        // why it leaves
	refused uint         // how many writes of the record in a row
	runs    map[int]*run
	before  map[int]owner // how the last owner has left each partition that this member takes

	id     string       // the member's name, and what no other membership has
	former string       // the ID of the membership before, of which no handler runs
	lease  *lease.Lease // begins when the member has joined
	joined bool
	beats  uint64       // heartbeats that were sent
	sent   lease.Moment // when the last one that was stored was sent
	seen   map[string]sighting
}

// hint is a write that the connection brought.
type hint struct{ key, value string }

// sighting is what this process knows of another membership: the value of its key, and since when it has known of no other.
type sighting struct {
	beat string
	at   time.Duration // by the monotonic clock
}

const (
	overwritten = "0"      // the value of the key of a member that is gone
	unseen      = "unseen" // no heartbeat: the key has not been read
)

func newMember(s *Set, o options, h jetpull.Handler) *member {
	return &member{
		set: s, options: o, handler: h, clock: lease.Now, log: o.logger.With("set", s.cfg.Name, "member", o.name),
		ended: make(chan *run, s.cfg.Partitions), hints: make(chan hint, 256), runs: map[int]*run{},
		before: map[int]owner{},
	}
}

// begin begins a membership. If it follows a lost one, it removes that from the record, also if this member is to leave.
func (m *member) begin(ctx context.Context) {
	m.former, m.id = m.id, m.options.name+"."+nuid.Next()
	m.joined, m.beats, m.sent, m.seen = false, 0, lease.Moment{}, map[string]sighting{} // it joins after a heartbeat of its own
	over := fmt.Errorf("%w: no heartbeat was stored within the TTL", ErrMembershipLost)
	m.lease = lease.New(context.WithoutCancel(ctx), m.clock, m.set.cfg.TTL, over) // handlers get the values of ctx
}

// hear takes in what any process writes to the bucket. It is a hint: a write may be missed, and it may be refused.
func (m *member) hear(key string, value []byte) {
	select {
	case m.hints <- hint{key, string(value)}:
	default:
	}
}

// run is the loop of the member. It returns when the member has left, and no handler runs.
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
			if h.key != recordKey { // a heartbeat that was sent before, whether it was stored or not
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
				m.set.counts.lost.Add(1)
				m.begin(ctx)
				next = 0
			// After the TTL, others have removed what this member could not remove.
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

// look sends a heartbeat if it is time for it, reads the record, changes it by what this member has to change, and starts and stops runs. If the
// record cannot be read, or was changed meanwhile, it changes nothing. It returns when to look again, and whether the record is as it has to be.
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
	if err != nil {
		m.log.Debug("partition: the bucket cannot be read", "error", err)
		// A server that has just started may not know it.
		missing := errors.Is(err, jetstream.ErrStreamNotFound) && m.clock().Mono-m.known.Mono >= m.set.cfg.TTL
		if missing || errors.Is(err, nats.ErrConnectionClosed) {
			m.lease.End(fmt.Errorf("%w: the bucket is gone", ErrMembershipLost))
			m.leave(fmt.Errorf("partition: the bucket was deleted, or the connection is closed: %w", err))
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
		if !m.lease.Valid() { // also if it was over when the heartbeat was stored
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

// spread is a time at random, so that members do not write at the same time. All but one of them would be refused. After a refusal it is longer.
func (m *member) spread() time.Duration {
	return time.Duration(rand.Int64N(int64(together) * int64(1+len(m.seen)) << min(m.refused, 4)))
}

// beat stores a heartbeat, if it is time for one.
func (m *member) beat(parent context.Context) {
	if m.beats > 0 && m.clock().Since(m.sent) < m.set.cfg.TTL/heartbeats {
		return
	}
	// A timeout of its own: if the bucket is gone, a write gets no answer, since members hear it.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(parent), m.set.cfg.TTL/heartbeats)
	defer cancel()
	sent := m.clock()
	m.beats++
	if m.table.write(ctx, memberKey+m.id, m.beats, anyRevision) == nil {
		m.sent = sent
	}
}

// remove removes the members that are gone from the record, and returns when to look again. One is gone if this process has known of no newer
// heartbeat for the TTL, and has then overwritten the last one, so no other was stored meanwhile. A value that another process has written has to
// stay for the TTL.
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

// change changes the record by what this member has to change, stops runs, and returns the partitions of those to start when the record is stored.
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
		case run != nil && id != m.id: // whatever the lease says
			m.lease.End(fmt.Errorf("%w: the record of the set gives partition %d to %q", ErrMembershipLost, n, nameOf(id)))
			return nil, false
		case run != nil && target != m.id:
			run.stop(fmt.Errorf("it goes to member %s", nameOf(target)))
		case run == nil && target == m.id && (id == "" || id == m.id):
			if id == "" { // or else the answer to the write that took it was lost
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
