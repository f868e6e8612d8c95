package jetpull

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/internal/wire"
)

const allRoom = inboxSlots - statusSlots

// world is what surrounds the rules: the clock, the wire and the engine. A
// test says what arrives and looks at what the rules ask for; after every
// event the world checks what must hold at all times.
type world struct {
	t   testing.TB
	r   *rules
	sub *Subscription
	now at
	seq uint64

	sent  []*pull
	seen  int // of sent, by the test
	naks  []*Msg
	acks  []*Msg
	wakes map[*claim]int
	// posted are all claims that were posted.
	posted   []*claim
	notices  []string
	calms    int
	subbed   []*inbox
	dropped  []*inbox
	draining []*inbox
	checks   int
	wonders  int
	pings    int  // so far
	pinged   bool // the last one is not answered
	deaf     bool // pings are not answered by themselves
}

func newWorld(t testing.TB, lim limits) *world {
	w := &world{t: t, sub: &Subscription{}, wakes: map[*claim]int{}}
	w.sub.ackNone.Store(lim.ackNone)
	w.r = newRules("api.next", "in", lim, func() float64 { return 0.5 })
	return w
}

// did takes the actions of the rules and checks the invariants.
func (w *world) did() {
	w.t.Helper()
	for _, a := range w.r.actions {
		switch a.kind {
		case actSubscribe:
			w.subbed = append(w.subbed, a.inbox)
		case actPull:
			p := *a.pull // as it was sent; the memory serves the next pull of its inbox
			w.sent = append(w.sent, &p)
		case actUnsubscribe:
			w.dropped = append(w.dropped, a.inbox)
		case actDrain:
			w.draining = append(w.draining, a.inbox)
		case actNak:
			w.naks = append(w.naks, a.msg)
		case actAck:
			w.acks = append(w.acks, a.msg)
		case actWake:
			w.wakes[a.claim]++
		case actProblem:
			w.notices = append(w.notices, "problem "+a.err.Error())
		case actCalm:
			w.calms++
		case actPinned:
			w.notices = append(w.notices, "pinned "+a.pin.Group+" "+a.pin.ID)
		case actUnpinned:
			w.notices = append(w.notices, "unpinned "+a.pin.Group+" "+a.pin.ID)
		case actCheck:
			w.checks++
		case actWonder:
			w.wonders++
		case actPing:
			w.pings++
			w.pinged = true
		}
	}
	w.r.actions = w.r.actions[:0]
	w.check()
}

// check fails the test unless what the rules hold is consistent. It is called
// after every event of thousands of runs, so it looks before it formats.
func (w *world) check() {
	w.t.Helper()
	total, draining := w.r.room, 0
	for _, ib := range w.draining {
		if !ib.closed {
			total += ib.reserved
			draining++
		}
	}
	for _, l := range w.r.lanes {
		total += w.checkLane(l)
		w.checkCover(l)
	}
	if total != allRoom {
		require.Equal(w.t, allRoom, total, "messages that may still be asked for")
	}
	if draining != w.r.draining {
		require.Equal(w.t, draining, w.r.draining, "inboxes that drain")
	}
	for _, ib := range w.r.idle {
		if !ib.open || ib.closed || ib.draining || ib.single || ib.pull != nil {
			require.Fail(w.t, "an idle inbox is not idle", "%+v", ib)
		}
	}
}

// checkLane checks claims and pulls of a lane and returns how many messages can
// still arrive for it.
func (w *world) checkLane(l *lane) (left int) {
	w.t.Helper()
	due := func(t at) bool { return w.r.due != 0 && w.r.due <= t }
	covered := 0
	for i, c := range l.claims {
		switch {
		case c.done:
			require.Fail(w.t, "a claim that is done still waits", "claim %d", i)
		case c.lane != l:
			require.Fail(w.t, "a claim waits in another's lane", "claim %d", i)
		case !c.wants():
			require.Fail(w.t, "a claim that wants nothing still waits", "claim %d", i)
		case c.deadline > 0 && !due(c.deadline):
			require.Fail(w.t, "no tick at the deadline of a claim", "claim %d, due at %v, deadline %v", i, w.r.due, c.deadline)
		case c.pull != nil && !slices.Contains(l.pulls, c.pull):
			require.Fail(w.t, "a claim is covered by a pull that is over", "claim %d", i)
		}
		if c.pull != nil {
			covered++
		}
	}
	for i, p := range l.pulls {
		left += p.left
		covered -= p.claims
		switch {
		case p.left < 1:
			require.Fail(w.t, "a pull that nothing can arrive for is open", "pull %d", i)
		case p.inbox.pull != p:
			require.Fail(w.t, "an inbox serves another pull", "pull %d", i)
		case !due(p.deadline):
			require.Fail(w.t, "no tick at the deadline of a pull", "pull %d, due at %v, deadline %v", i, w.r.due, p.deadline)
		}
	}
	if covered != 0 {
		require.Zero(w.t, covered, "claims that are covered, less those that pulls think they cover")
	}
	return left
}

// checkCover fails the test if a claim waits for a pull that could be sent.
func (w *world) checkCover(l *lane) {
	w.t.Helper()
	if w.r.down || w.r.closed || w.r.room < 1 || w.now < l.retryAt {
		return
	}
	inFlight := 0
	for _, p := range l.pulls {
		if p.kind == pullQuick && p.carrier == nil && !p.ended {
			inFlight++
		}
	}
	for i, c := range l.claims {
		if c.mode != claimStanding && c.pull == nil && c.refused == nil && (c.long || inFlight == 0) {
			require.Fail(w.t, "nothing covers a claim", "claim %d of %d, long %v, room %d, now %v, due %v, no pull before %v", i+1, len(l.claims), c.long, w.r.room, w.now, w.r.due, l.retryAt)
		}
	}
}

// lane is the lane of terms without a group.
func (w *world) lane() *lane { return w.r.laneOf(groupTerms{}, 0, false) }

// newClaim makes a claim of n messages with a deadline in wait.
func (w *world) newClaim(n int, wait time.Duration, change ...func(*claim)) *claim {
	c := &claim{want: n, deadline: w.now + wait, ready: make(chan struct{}, 1)}
	for _, f := range change {
		f(c)
	}
	if c.lane == nil {
		c.lane = w.r.laneOf(groupTerms{}, 0, c.maxBytes > 0)
	}
	return c
}

// post posts a claim of n messages with a deadline in wait.
func (w *world) post(n int, wait time.Duration, change ...func(*claim)) *claim {
	w.t.Helper()
	c := w.newClaim(n, wait, change...)
	w.posted = append(w.posted, c)
	w.r.post(w.now, c)
	w.did()
	return c
}

func fill(c *claim)   { c.mode = claimFill }
func noWait(c *claim) { c.noWait = true }

func standingOf(window int) func(*claim) {
	return func(c *claim) { c.mode, c.stand.window, c.want, c.deadline = claimStanding, window, 0, 0 }
}

func carriedBy(m *Msg) func(*claim) { return func(c *claim) { c.carrier = m } }

func maxBytes(n int) func(*claim) { return func(c *claim) { c.maxBytes = n } }

func in(l *lane) func(*claim) { return func(c *claim) { c.lane = l } }

// postLong posts claims that have already found nothing, all at once.
func (w *world) postLong(claims ...*claim) {
	w.t.Helper()
	w.r.disconnected()
	for _, c := range claims {
		c.long = true
		w.posted = append(w.posted, c)
		w.r.post(w.now, c)
		w.did()
	}
	w.r.reconnected(w.now)
	w.did()
}

// pulled returns the pulls that were sent since it was called last and fails
// the test unless they are as many as kinds, and of those kinds.
func (w *world) pulled(kinds ...pullKind) []*pull {
	w.t.Helper()
	fresh := w.sent[w.seen:]
	w.seen = len(w.sent)
	got := make([]pullKind, len(fresh))
	for i, p := range fresh {
		got[i] = p.kind
	}
	require.Equal(w.t, kinds, got[:len(got):len(got)], "pulls sent: %s", describePulls(fresh))
	return fresh
}

// quiet fails the test if a pull was sent since pulled was called last.
func (w *world) quiet() {
	w.t.Helper()
	require.Empty(w.t, describePulls(w.sent[w.seen:]))
}

func describePulls(pulls []*pull) string {
	text := ""
	for _, p := range pulls {
		text += fmt.Sprintf("%s kind %d; ", p.req.Append(nil), p.kind)
	}
	return text
}

// message makes the next message of the stream.
func (w *world) message(body string) *Msg {
	w.seq++
	return &Msg{sub: w.sub, raw: &nats.Msg{
		Subject: "s.a", Data: []byte(body),
		Reply: fmt.Sprintf("$JS.ACK.S.C.1.%d.%d.1700000000000000000.0", w.seq, w.seq),
	}}
}

// deliver lets n messages arrive for p.
func (w *world) deliver(p *pull, n int) []*Msg {
	w.t.Helper()
	ms := make([]*Msg, n)
	for i := range ms {
		ms[i] = w.arrive(p.inbox, "")
	}
	return ms
}

// arrive lets a message arrive on ib.
func (w *world) arrive(ib *inbox, pin string) *Msg {
	w.t.Helper()
	m := w.message("body")
	w.r.data(w.now, ib, m, m.raw.Size(), pin)
	w.did()
	return m
}

// status lets a status arrive for p.
func (w *world) status(p *pull, code int, desc string) {
	w.t.Helper()
	w.r.status(w.now, p.inbox, p.token, classify(wire.Status{Code: code, Description: desc}))
	w.did()
}

// pending lets a status with Nats-Pending-Messages arrive for p.
func (w *world) pending(p *pull, code int, desc string, msgs int64) {
	w.t.Helper()
	w.r.status(w.now, p.inbox, p.token, classify(wire.Status{Code: code, Description: desc, HasPending: true, PendingMsgs: msgs}))
	w.did()
}

func (w *world) empty(p *pull) {
	w.t.Helper()
	w.status(p, 404, "No Messages")
}

// pass lets time pass, with the ticks that the rules asked for.
func (w *world) pass(d time.Duration) {
	w.t.Helper()
	until := w.now + d
	for w.r.due != 0 && w.r.due <= until {
		w.now = max(w.now, w.r.due)
		w.r.tick(w.now)
		w.r.next(w.now)
		w.did()
		if !w.deaf {
			w.pong(true)
		}
		require.True(w.t, w.r.due == 0 || w.r.due > w.now, "a tick at %v asks for another at %v: the reader would spin", w.now, w.r.due)
	}
	w.now = until
}

// pong answers the ping that is out, if any.
func (w *world) pong(came bool) {
	w.t.Helper()
	if w.pinged {
		w.pinged = false
		w.r.ponged(w.now, came)
		w.did()
	}
}

// drained lets all inboxes that drain come to their end.
func (w *world) drained() {
	w.t.Helper()
	for _, ib := range w.draining {
		w.r.drained(w.now, ib)
		w.did()
	}
}

// ended fails the test unless c is over, with n messages and the error want.
func (w *world) ended(c *claim, n int, want error) {
	w.t.Helper()
	require.True(w.t, c.done, "the claim still waits")
	require.Len(w.t, c.got, n)
	if want == nil {
		require.NoError(w.t, c.err)
	} else {
		require.ErrorIs(w.t, c.err, want)
	}
	require.Equal(w.t, 1, w.wakes[c], "a claim wakes its caller once")
}

// waits fails the test if c is over.
func (w *world) waits(c *claim) {
	w.t.Helper()
	require.False(w.t, c.done, "the claim has ended with %v", c.err)
}

// atRest fails the test unless nothing is left: no claim, no pull, all room.
func (w *world) atRest() {
	w.t.Helper()
	for _, p := range w.sent {
		if open := p.inbox.pull; open != nil && open.token == p.token && open.claims == 0 {
			w.empty(p)
		}
	}
	w.drained()
	require.Equal(w.t, allRoom, w.r.room)
	require.Zero(w.t, w.r.draining)
	require.False(w.t, w.r.reading())
	for _, l := range w.r.lanes {
		require.Empty(w.t, l.claims)
		require.Empty(w.t, l.pulls)
	}
	for _, c := range w.posted {
		require.True(w.t, c.done)
		if c.mode != claimStanding {
			require.NotEqual(w.t, len(c.got) > 0, c.err != nil, "messages or an error, never both nor neither")
			require.Equal(w.t, 1, w.wakes[c])
		}
	}
}

// ending is a status that ends a pull; with tells it carries what is pending.
func ending(code int, desc string, tells bool, pending int) status {
	s := wire.Status{Code: code, Description: desc}
	if tells {
		s.HasPending, s.PendingMsgs = true, int64(pending)
	}
	return classify(s)
}

func heartbeat() status { return ending(100, "Idle Heartbeat", false, 0) }
