package jetpull

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var randomSeed = flag.Uint64("rules.seed", 0, "run only this seed of TestRulesUnderRandomEvents")

// TestRulesUnderRandomEvents draws calls, deliveries, statuses, losses and
// delays, thousands of times, and holds the rules to what must be true whatever
// happens: each message that arrives is handed to exactly one claim or given
// back, each claim ends exactly once, by its deadline, with messages or an
// error, and in the end nothing is left.
func TestRulesUnderRandomEvents(t *testing.T) {
	seeds, first := uint64(2000), uint64(1)
	if testing.Short() {
		seeds = 300
	}
	if *randomSeed != 0 {
		seeds, first = 1, *randomSeed
	}
	for seed := first; seed < first+seeds; seed++ {
		run := &chaos{seed: seed, rand: rand.New(rand.NewPCG(seed, 7)), closed: map[*inbox]bool{}}
		lim := limits{ackNone: run.one(5), pinned: run.one(4)}
		if run.one(4) {
			lim.batch = 1 + run.rand.IntN(20)
		}
		if run.one(4) {
			lim.expires = time.Second
		}
		run.world = newWorld(failing{t, seed}, lim)
		run.r.jitter = run.rand.Float64
		run.deaf = run.one(2)
		run.play(250)
	}
}

// failing names the seed in each failure.
type failing struct {
	*testing.T
	seed uint64
}

func (f failing) Errorf(format string, args ...any) {
	f.Helper()
	f.T.Errorf("seed %d (replay with -rules.seed): %s", f.seed, fmt.Sprintf(format, args...))
}

// chaos is a world in which dice are thrown. Between client and server two
// queues keep the order of a connection.
type chaos struct {
	*world
	seed uint64
	rand *rand.Rand

	up      []action // pulls and UNSUBs that the server has not seen
	down    []func() // frames that the client has not seen
	pulls   []*serverPull
	closed  map[*inbox]bool // the server knows of no such subscription
	drains  []*inbox
	cut     bool
	arrived []*Msg
	stand   []*claim
}

// serverPull is what the server knows of a pull.
type serverPull struct {
	*pull
	left int
}

func (c *chaos) one(in int) bool { return c.rand.IntN(in) == 0 }

func (c *chaos) play(steps int) {
	for range steps {
		c.step()
		c.carry()
	}
	c.r.reconnected(c.now)
	c.carry()
	for _, s := range c.stand {
		c.r.leave(c.now, s, context.Canceled)
		c.carry()
	}
	if c.one(2) {
		c.r.shut(c.now)
		c.carry()
	}
	for range 3 {
		c.flow()
		c.pass(time.Minute)
		c.carry()
	}
	c.pulls = nil
	c.flow()
	c.atRest()
	for _, s := range c.stand {
		require.Zero(c.t, s.stand.draining, "bytes that are reserved for nothing")
	}
	c.account()
}

// carry takes the actions to the wire.
func (c *chaos) carry() {
	c.t.Helper()
	for _, a := range c.r.actions {
		switch a.kind {
		case actPull, actUnsubscribe, actDrain:
			if a.pull != nil {
				p := *a.pull // as it was sent
				a.pull = &p
			}
			c.up = append(c.up, a)
		}
	}
	c.did()
	for _, p := range c.posted {
		if !p.done && p.deadline > 0 && p.deadline < c.now {
			require.Fail(c.t, "a claim outlives its deadline", "%v at %v", p.deadline, c.now)
		}
	}
}

func (c *chaos) step() {
	switch n := c.rand.IntN(100); {
	case n < 14:
		c.call()
	case n < 17:
		c.leaveOne()
	case n < 20:
		c.settleSome()
	case n < 32:
		c.pass(time.Duration(c.rand.IntN(300)) * time.Millisecond)
	case n < 35:
		c.pass(time.Duration(c.rand.IntN(6)) * time.Second)
	case n < 52:
		c.serverReads()
	case n < 70:
		c.serverDelivers()
	case n < 78:
		c.serverEnds()
	case n < 97:
		c.clientReads()
	case n < 98:
		c.connection()
	case n < 99:
		c.sendFails()
	case c.pinged:
		c.pinged = false
		c.r.ponged(c.now, !c.cut)
	default:
		c.r.gone(c.now, nil)
	}
}

func (c *chaos) call() {
	terms := groupTerms{}
	if c.one(3) {
		terms.group = "g"
	}
	cl := c.newClaim(1+c.rand.IntN(8), time.Duration(1+c.rand.IntN(8000))*time.Millisecond, in(c.r.laneOf(terms, 0, false)))
	switch {
	case c.one(8):
		if len(c.stand) >= 2 {
			return
		}
		standingOf(1 + c.rand.IntN(20))(cl)
		c.stand = append(c.stand, cl)
	case c.one(3):
		fill(cl)
	case c.one(4):
		noWait(cl)
	case c.one(5):
		cl.maxBytes = 1 + c.rand.IntN(300)
		cl.lane = c.r.laneOf(terms, 0, true)
	case c.one(6) && !c.r.limits.ackNone:
		cl.want, cl.carrier = 1, c.message("carrier")
	case c.one(7):
		cl.asked = true
	case c.one(30):
		cl.want = 10_000
	}
	if cl.mode == claimStanding && c.one(2) {
		cl.stand.byteWindow = 1 + c.rand.IntN(1000)
	} else if cl.mode == claimStanding && c.one(2) {
		cl.stand.byteBound = (&streamSettings{}).byteBound()
	}
	c.posted = append(c.posted, cl)
	c.r.post(c.now, cl)
}

func (c *chaos) leaveOne() {
	if len(c.posted) > 0 {
		c.r.leave(c.now, c.posted[c.rand.IntN(len(c.posted))], context.Canceled)
	}
}

// settleSome lets the caller of a standing claim be done with messages.
func (c *chaos) settleSome() {
	for _, s := range c.stand {
		s.stand.woken = false
		if n := s.stand.held; n > 0 {
			k := 1 + c.rand.IntN(n)
			c.r.took(c.now, s, k, s.stand.heldBytes*k/n)
			if last := len(s.got) - 1; last >= 0 && c.r.limits.ackNone && c.one(4) {
				// It has no use for one that it was given.
				m := s.got[last]
				s.got = s.got[:last]
				c.r.keep(c.now, m)
			}
		}
	}
}

// serverReads lets the server take what the client sent.
func (c *chaos) serverReads() {
	if len(c.up) == 0 || c.cut {
		return
	}
	a := c.up[0]
	c.up = c.up[1:]
	switch a.kind {
	case actPull:
		if c.one(30) {
			return // lost, or dropped without a word
		}
		c.pulls = append(c.pulls, &serverPull{pull: a.pull, left: a.pull.req.Batch})
	case actUnsubscribe:
		c.closed[a.inbox] = true
	case actDrain:
		c.closed[a.inbox] = true
		c.drains = append(c.drains, a.inbox)
		c.down = append(c.down, func() { c.r.drained(c.now, a.inbox) })
	}
}

func (c *chaos) anyPull() *serverPull {
	c.pulls = slices.DeleteFunc(c.pulls, func(p *serverPull) bool { return c.closed[p.inbox] || p.left == 0 })
	if len(c.pulls) == 0 || c.cut {
		return nil
	}
	return c.pulls[c.rand.IntN(len(c.pulls))]
}

func (c *chaos) serverDelivers() {
	p := c.anyPull()
	if p == nil {
		return
	}
	for range 1 + c.rand.IntN(min(p.left, 20)) {
		c.deliverOne(p)
	}
}

func (c *chaos) deliverOne(p *serverPull) {
	p.left--
	m, pin := c.message("body"), ""
	if c.r.limits.pinned && c.one(2) {
		pin = fmt.Sprint("pin", c.rand.IntN(2))
	}
	c.down = append(c.down, func() {
		c.arrived = append(c.arrived, m)
		if p.inbox.closed && !p.inbox.draining {
			// The engine knows of no such inbox any more.
			c.r.do(action{kind: actNak, msg: m})
			return
		}
		c.r.data(c.now, p.inbox, m, m.raw.Size(), pin)
	})
}

var randomEnds = []struct {
	code    int
	desc    string
	pending bool
}{
	// The common ones more often.
	{404, "No Messages", false},
	{404, "No Messages", false},
	{404, "No Messages", false},
	{408, "Request Timeout", true},
	{408, "Request Timeout", true},
	{408, "Requests Pending", false},
	{409, "Batch Completed", true},
	{409, "Message Size Exceeds MaxBytes", true},
	{409, "Leadership Change", false},
	{409, "Server Shutdown", true},
	{409, "Exceeded MaxWaiting", false},
	{423, "Nats-Pin-Id mismatch", false},
	{423, "Nats-Wrong-Pin-Id", true},
	{503, "", false},
	{400, "Bad Request", false},
	{409, "Consumer Deleted", false},
	{499, "New", false},
}

// serverEnds ends a pull: silently, or with a status that may overtake the
// messages before it where it tells their number.
func (c *chaos) serverEnds() {
	p := c.anyPull()
	if p == nil {
		return
	}
	if c.one(6) {
		s := heartbeat()
		c.down = append(c.down, func() { c.r.status(c.now, p.inbox, p.token, s) })
		return
	}
	end := randomEnds[c.rand.IntN(len(randomEnds))]
	if c.one(10) {
		p.left = 0
		return
	}
	s := ending(end.code, end.desc, end.pending, p.left)
	say := func() { c.down = append(c.down, func() { c.r.status(c.now, p.inbox, p.token, s) }) }
	if end.pending && p.left > 0 && c.one(2) {
		late := &serverPull{pull: p.pull, left: 1 + c.rand.IntN(p.left)}
		s.PendingMsgs = int64(p.left - late.left)
		say()
		for late.left > 0 {
			c.deliverOne(late)
		}
	} else {
		say()
	}
	p.left = 0
}

func (c *chaos) clientReads() {
	for range 1 + c.rand.IntN(5) {
		if len(c.down) == 0 {
			return
		}
		f := c.down[0]
		c.down = c.down[1:]
		f()
		c.carry()
	}
}

// connection cuts it or brings it back. What was on its way is lost.
func (c *chaos) connection() {
	if !c.cut {
		c.cut = true
		lost := c.up
		c.up, c.down, c.pulls = nil, nil, nil
		c.r.disconnected()
		for _, a := range lost {
			c.giveUpDrain(a)
		}
		for _, ib := range c.drains {
			c.r.drained(c.now, ib)
		}
		return
	}
	c.cut = false
	c.r.reconnected(c.now)
}

// giveUpDrain tells of a drain whose answer was lost with the connection.
func (c *chaos) giveUpDrain(a action) {
	if a.kind == actDrain {
		c.closed[a.inbox] = true
		c.r.drained(c.now, a.inbox)
	}
}

func (c *chaos) sendFails() {
	if len(c.up) == 0 || c.up[len(c.up)-1].kind != actPull {
		return
	}
	p := c.up[len(c.up)-1].pull
	if open := p.inbox.pull; open == nil || open.token != p.token {
		return
	}
	c.up = c.up[:len(c.up)-1]
	c.r.sendFailed(c.now, p.inbox, errors.New("broken"))
}

// flow lets everything on the wire arrive.
func (c *chaos) flow() {
	c.cut = false
	for len(c.up) > 0 || len(c.down) > 0 {
		c.serverReads()
		c.clientReads()
	}
}

// account says where each message went that arrived.
func (c *chaos) account() {
	c.t.Helper()
	where := map[*Msg]int{}
	for _, m := range c.naks {
		where[m]++
	}
	for _, cl := range c.posted {
		for _, m := range cl.got {
			where[m]++
		}
	}
	stashed := 0
	for _, l := range c.r.lanes {
		for _, m := range l.stash {
			where[m]++
			stashed++
		}
	}
	missing := 0
	for _, m := range c.arrived {
		switch where[m] {
		case 0:
			missing++
		case 1:
		default:
			require.Fail(c.t, "a message was handed over more than once", "%d times", where[m])
		}
		delete(where, m)
	}
	require.Empty(c.t, where, "messages that never arrived were handed over")
	require.EqualValues(c.t, c.r.stats.dropped, missing, "messages were lost; %d are in the stash", stashed)
	if !c.r.limits.ackNone {
		require.Zero(c.t, missing)
		require.Zero(c.t, stashed)
	}
}
