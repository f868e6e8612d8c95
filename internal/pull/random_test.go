package pull

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestRandomEvents draws calls, deliveries, statuses, losses and delays, and checks after
// each event what must be true whatever happens: see check, settled, idle and account.
// A subtest has the name of its seed.
func TestRandomEvents(t *testing.T) {
	for seed := range uint64(3000) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { newChaos(t, seed).play(120) })
	}
}

func FuzzEvents(f *testing.F) {
	f.Add(uint64(27919)) // messages come to an inbox that was given up
	f.Fuzz(func(t *testing.T, seed uint64) { newChaos(t, seed).play(120) })
}

// chaos is an engine and a server with random events. Two queues between them keep the
// order of a connection.
type chaos struct {
	*world
	*rand.Rand

	up      []upward // frames that the server has not received
	down    []func() // frames that the client has not received
	served  []*served
	gone    map[*Inbox]bool // the server has no such subscription
	cut     bool
	sizes   []int // of the messages, whose numbers begin with 0
	arrived []int
}

type (
	// upward is a frame for the server; pull is nil for an UNSUB.
	upward struct {
		pull *sent
		take func()
	}
	// served is the server's state of a pull.
	served struct {
		*sent
		left, bytes int
	}
)

func newChaos(t *testing.T, seed uint64) *chaos {
	r := rand.New(rand.NewPCG(seed, 7))
	c := &chaos{Rand: r, gone: map[*Inbox]bool{}}
	text := c.pick("", "", "", "acknone", "pinned", "pinned ttl=3s") + c.pick("", "", "", " batch=5", " batch=17") +
		c.pick("", "", "", " expires=1s") + c.pick("", "", "", " waiting=4") + c.pick("", "", "", " bytes=250")
	slots := 1 + r.IntN(60)
	c.world = newWorld(t, limits(strings.Fields(text)), slots)
	c.e.rng = r
	c.onWire = c.sends
	return c
}

func (c *chaos) one(in int) bool { return c.IntN(in) == 0 }

func (c *chaos) pick(of ...string) string { return of[c.IntN(len(of))] }

func (c *chaos) play(steps int) {
	for range steps {
		c.step()
		c.settled()
	}
	if c.cut {
		c.connection()
	}
	for _, d := range c.demands {
		if d.Mode == Standing {
			c.e.Cancel(c.now, d, nil)
		}
	}
	c.settled()
	if c.one(4) { // frames in flight arrive after Close
		c.e.Close(c.now, errClosed)
		c.settled()
	}
	for range 3 {
		c.flow()
		c.pass(c.now + time.Minute)
	}
	c.served = nil
	c.flow()
	for _, d := range c.demands {
		c.must(d.Done, "%v is not over", d.Ref)
	}
	c.end()
	c.account()
}

func (c *chaos) sends(f *Effect, p *sent) {
	ib := f.Inbox
	gone := func() { c.gone[ib] = true }
	drained := func() { c.down = append(c.down, func() { c.drained(ib) }) }
	switch {
	case f.Kind == Send:
		c.up = append(c.up, upward{p, func() { c.take(p) }})
	case f.Kind == Unsubscribe:
		c.up = append(c.up, upward{nil, gone})
	case f.Kind == Drain && c.cut:
		drained()
	case f.Kind == Drain:
		c.up = append(c.up, upward{nil, gone}, upward{nil, drained})
	}
}

// settled carries out the effects of the last step.
func (c *chaos) settled() {
	c.act()
	for _, d := range c.demands {
		c.must(d.Done || d.Mode == Standing || d.Deadline > c.now, "%v outlives its deadline", d.Ref)
	}
}

func (c *chaos) step() {
	switch n := c.IntN(100); {
	case n < 14:
		want := c.pick("1", "1", "1", "2", "3", "4", "5", "6", "7", "8", "8", "300")
		c.event(strings.Fields(fmt.Sprintf("post d%d %s %s %v %s %s", len(c.demands), c.pick("some", "some", "fill"), want,
			time.Millisecond+time.Duration(c.IntN(8e9)), c.pick("", "g=g"), c.pick("", "", "", "nowait", "nowait", "chosen", "mb=300"))))
	case n < 16:
		c.event(strings.Fields(fmt.Sprintf("post d%d stand %d workers=%d %s %s", len(c.demands), 1+c.IntN(20), c.IntN(3),
			c.pick("", "g=g", "hb=1s"), c.pick("", "bytes=500", "bytes=40", "bytes=67108864", "mb=300"))))
	case n < 19:
		if len(c.demands) > 0 {
			c.e.Cancel(c.now, c.demands[c.IntN(len(c.demands))], errors.New("canceled"))
		}
	case n < 23:
		c.credit()
	case n < 35:
		c.idle()
	case n < 52:
		c.serverReads()
	case n < 70:
		c.serverDelivers()
	case n < 78:
		c.serverEnds()
	case n < 95:
		c.clientReads()
	case n < 96:
		c.connection()
	case n < 98 && c.one(8):
		c.e.Fail(c.now, errors.New("refused"), false)
	default:
		c.requests()
	}
}

// idle lets time pass in which nothing arrives: the client does not pull without end.
func (c *chaos) idle() {
	before, waiting, d := len(c.pulls), 0, time.Duration(c.IntN(3e8))*time.Duration(1+c.IntN(4)/3*20)
	for _, d := range c.demands {
		if !d.Done {
			waiting++
		}
	}
	c.pass(c.now + d)
	c.must(len(c.pulls)-before <= waiting*(3+int(d/(100*time.Millisecond))), "%d pulls within %v for %d demands", len(c.pulls)-before, d, waiting)
}

// credit returns messages of the callers of standing demands.
func (c *chaos) credit() {
	for _, d := range c.demands {
		if d.Mode != Standing {
			continue
		}
		k, bytes := 0, 0
		if d.stand.held > 0 {
			k = 1 + c.IntN(d.stand.held)
			bytes = d.stand.heldBytes * k / d.stand.held
		}
		c.e.Credit(c.now, d, Credit{N: k, Bytes: bytes, Window: 1 + c.IntN(40), Starving: c.one(3)})
		c.settled()
		if last := len(c.taken[d]) - 1; last >= 0 && c.e.limits.AckNone && c.one(4) {
			m := c.taken[d][last]
			c.taken[d] = c.taken[d][:last]
			c.e.Return(c.now, d.Terms, m, c.sizes[m.Sequence()])
		}
	}
}

// serverReads makes the server process frames of the client.
func (c *chaos) serverReads() {
	if len(c.up) > 0 && !c.cut {
		next := c.up[0]
		c.up = c.up[1:]
		next.take()
	}
}

func (c *chaos) take(p *sent) {
	l := &c.e.limits
	switch {
	case c.one(30): // lost, or dropped without a status
	case l.Batch > 0 && p.req.Batch > l.Batch || l.Expires > 0 && p.req.Expires > l.Expires || c.one(100):
		c.says(p, "limit", -1)
	default:
		c.served = append(c.served, &served{p, p.req.Batch, p.req.MaxBytes})
	}
}

// says sends a status; left is negative if the status does not count the rest of the batch.
func (c *chaos) says(p *sent, name string, left int) {
	s := statuses[name]
	s.HasPending, s.PendingMsgs = left >= 0, int64(max(0, left))
	c.down = append(c.down, func() { c.status(p, s) })
}

func (c *chaos) anyPull() *served {
	c.served = slices.DeleteFunc(c.served, func(p *served) bool { return c.gone[p.ib] || p.left == 0 })
	if len(c.served) == 0 || c.cut {
		return &served{}
	}
	return c.served[c.IntN(len(c.served))]
}

func (c *chaos) serverDelivers() {
	p := c.anyPull()
	for n := 1 + c.IntN(20); n > 0 && p.left > 0; n-- {
		c.deliver(p)
	}
}

// deliver sends a message for p, if that still fits.
func (c *chaos) deliver(p *served) {
	m, size, pin := len(c.sizes), 1+c.IntN(200), ""
	if p.left--; p.req.MaxBytes > 0 {
		if size > p.bytes {
			c.says(p.sent, "bytes", p.left+1)
			p.left = 0
			return
		}
		if p.bytes -= size; p.bytes == 0 {
			p.left = 0 // it ends without a status
		}
	}
	if c.e.limits.Pinned && c.one(2) {
		pin = c.pick("x", "y")
	}
	c.sizes = append(c.sizes, size)
	c.down = append(c.down, func() {
		c.arrived = append(c.arrived, m)
		if c.boxes[p.ib].gone {
			c.e.Message(c.now, &Inbox{}, message(m), 0, "") // the driver has dropped the inbox
		} else {
			c.e.Message(c.now, p.ib, message(m), size, pin)
		}
	})
	if p.bytes > 0 && p.left == 0 {
		c.says(p.sent, "batch", 0)
	}
}

// serverEnds ends a pull: without a status, or with one that may overtake the messages
// before it if it counts them.
func (c *chaos) serverEnds() {
	p := c.anyPull()
	if p.left == 0 {
		return
	}
	name := c.pick("100", "100", "100", "404", "404", "404", "408", "408", "pending", "interest", "batch", "bytes",
		"leader", "leader", "shutdown", "waiting", "423", "503", "400", "deleted", "other")
	switch {
	case name == "100":
		c.says(p.sent, name, -1)
		return
	case c.one(10):
	case slices.Contains([]string{"408", "interest", "batch", "bytes", "shutdown", "423"}, name) && c.one(2):
		late := 1 + c.IntN(p.left)
		c.says(p.sent, name, p.left-late)
		for ; late > 0 && !c.one(8); late-- {
			c.deliver(&served{&sent{ib: p.ib}, 1, 0})
		}
	default:
		c.says(p.sent, name, -1)
	}
	p.left = 0
}

func (c *chaos) clientReads() {
	for n := 1 + c.IntN(5); n > 0 && len(c.down) > 0; n-- {
		frame := c.down[0]
		c.down = c.down[1:]
		frame()
		c.settled()
	}
}

// connection cuts the connection or restores it. Frames in flight are lost.
func (c *chaos) connection() {
	if c.cut = !c.cut; !c.cut {
		c.e.Reconnected(c.now)
		return
	}
	c.up, c.down, c.served = nil, nil, nil
	c.e.Disconnected()
	c.settled()
	for _, ib := range slices.Clone(c.draining) {
		c.drained(ib)
	}
	clear(c.gone)
}

// requests answers the request for proof, if there is one, and changes a limit now and then.
func (c *chaos) requests() {
	if c.e.Proving() && !c.one(4) {
		c.answered()
	}
	if c.one(16) {
		lim := c.e.limits
		lim.Batch = 5
		c.e.SetLimits(lim)
	}
}

// flow lets all frames in flight arrive.
func (c *chaos) flow() {
	for len(c.up) > 0 || len(c.down) > 0 || c.e.Proving() {
		c.serverReads()
		c.clientReads()
		c.requests()
		c.settled()
	}
}

// account checks that each message that arrived ended in exactly one way.
func (c *chaos) account() {
	places := make([]int, len(c.sizes))
	all := slices.Clone(c.naks)
	for _, d := range c.demands {
		all = slices.Concat(all, d.Got, c.taken[d])
	}
	for _, m := range all {
		places[m.Sequence()]++
	}
	missing := uint64(0)
	for _, m := range c.arrived {
		c.must(places[m] < 2, "message %d was handed over %d times", m, places[m])
		missing += uint64(1 - places[m])
	}
	s, _ := c.e.Stats()
	c.must(int(s.HandedBack) == len(c.naks), "%d messages were handed back, and %d are counted", len(c.naks), s.HandedBack)
	c.must(len(all)+int(missing) == len(c.arrived), "messages came from nowhere: %v", all)
	c.must(missing == s.Dropped && (missing == 0 || c.e.limits.AckNone), "%d messages are missing, and %d were dropped", missing, s.Dropped)
}
