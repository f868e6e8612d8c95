package jetpull

import (
	"context"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// A failed message holds back those of its line until it has come back. It may
// never do so: where others share the consumer it can go to them. It comes soon if
// its NAK got there, and if not then after AckWait.

// lineGrace is how long after its delay a failed message may take to come
// back before its line goes on without it.
const lineGrace = 5 * time.Second

// askWait is how long the server may take to say what is the matter.
const askWait = time.Second

// lookAfterLines opens lines that have waited for long enough, on a goroutine of the
// stream's, one at a time: the server is asked, and in-progress must not wait for its
// answer.
func (st *stream) lookAfterLines(now at) {
	if st.queue.overdueBlock(now) == 0 && (st.acks == nil || !st.acks.late(time.Now())) || !st.lifting.CompareAndSwap(false, true) {
		return
	}
	st.group.Go(func(ctx context.Context) {
		defer st.lifting.Store(false)
		st.lift(ctx, st.e.now())
		st.lookForGone(ctx)
	})
}

// holdBack lets the line of h wait for its return.
func (st *stream) holdBack(h held, delay time.Duration) {
	until := st.e.now() + delay + min(st.sub.patience(), lineGrace)
	if freed, bytes := st.queue.failed(h, until); freed > 0 {
		st.tellFreed(freed, bytes)
	}
}

// lift opens the lines that have waited in vain for their failed message. It
// waits on while the message cannot come, and with ack policy all until the
// server has it settled: the acknowledgement of a later one would cover it.
func (st *stream) lift(ctx context.Context, now at) {
	seq := st.queue.overdueBlock(now)
	if seq == 0 {
		return
	}
	var info *jetstream.ConsumerInfo
	if st.e.nc.IsConnected() {
		info = st.ask(ctx)
	}
	late := info == nil || info.Paused || !hasQuorum(info.Cluster)
	if late {
		st.upset.Store(max(1, int64(st.e.now())))
	}
	floor := uint64(0)
	if info != nil {
		floor = info.AckFloor.Stream
		// Where nothing overflows it may be with nobody.
		late = late || floor < seq && !st.set.terms.served(info)
	}
	if late || st.acks != nil && floor < seq && st.acks.missing(info, seq) > 0 {
		st.queue.postpone(now + min(st.sub.patience(), lineGrace))
		return
	}
	if st.acks != nil {
		st.acks.settled(seq)
	}
	st.queue.lift(now, news{floor: floor, upset: at(st.upset.Load()), wait: st.sub.longestWait() + lineGrace})
}

// served reports whether the server serves pulls of t now. With the overflow policy
// redeliveries too wait until the consumer has enough to do.
func (t groupTerms) served(info *jetstream.ConsumerInfo) bool {
	return t.minPending <= 0 && t.minAckPending <= 0 ||
		t.minPending > 0 && info.NumPending >= uint64(t.minPending) ||
		t.minAckPending > 0 && int64(info.NumAckPending) >= t.minAckPending
}

// replicaSilence is after how long a replica is taken to be away; it is heard of
// each second.
const replicaSilence = 3 * time.Second

// hasQuorum reports whether a leader can deliver. One that lost its peers answers
// for some time and delivers nothing.
func hasQuorum(c *jetstream.ClusterInfo) bool {
	if c == nil {
		return true
	}
	here := 1
	for _, r := range c.Replicas {
		if !r.Offline && r.Active < replicaSilence {
			here++
		}
	}
	return 2*here > len(c.Replicas)+1
}

// ask asks the server about the consumer; nil where it does not say.
func (st *stream) ask(ctx context.Context) *jetstream.ConsumerInfo {
	ctx, cancel := context.WithTimeout(ctx, askWait)
	defer cancel()
	info, err := st.sub.handle.Info(ctx)
	if err != nil {
		return nil
	}
	return info
}

// longestWait is the longest that the server waits before it redelivers a message
// of which it has not heard.
func (s *Subscription) longestWait() time.Duration {
	wait := s.patience()
	for _, d := range s.config().BackOff {
		wait = max(wait, d)
	}
	return wait
}

// overdueBlock is the failed message of a line that is to be lifted by now; 0:
// there is none.
func (d *dispatch) overdueBlock(now at) (seq uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, l := range d.lines {
		if l.blocked != 0 && l.until <= now {
			return l.blocked
		}
	}
	return 0
}

// postpone lets no line be lifted before until.
func (d *dispatch) postpone(until at) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, l := range d.lines {
		l.until = max(l.until, until)
	}
}

// news is what is known when lines are to be lifted.
type news struct {
	floor uint64        // all up to there is settled
	upset at            // when something last happened that can lose a NAK; 0: never
	wait  time.Duration // by then a message comes again whose NAK was lost
}

// lift opens the lines whose failed message has not come back in time: it was
// delivered to another client, or never will be.
func (d *dispatch) lift(now at, n news) {
	if !d.lined {
		return
	}
	d.mu.Lock()
	defer d.release()
	for key, l := range d.lines {
		if l.blocked == 0 || l.until > now {
			continue
		}
		again := max(n.upset, l.since) + n.wait
		if l.blocked > n.floor && n.upset > 0 && n.upset+lineGrace >= l.since && now < again {
			l.until = again
			continue
		}
		l.giveUpAway(now - d.grace)
		d.advance(key)
	}
}
