package pull

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jetpull/jetpull/internal/wire"
)

// world replaces the driver: it carries out the effects of an engine, checks that each of
// them is possible, and keeps their text.
type world struct {
	t   *testing.T
	e   *Engine
	now At

	log      []string // effects of the last event
	boxes    map[*Inbox]*box
	draining []*Inbox
	pulls    []*sent
	demands  []*Demand             // Ref is the name
	taken    map[*Demand][]Message // messages that standing demands got
	naks     []Message
	began    At                       // when the last request for proof began
	onWire   func(f *Effect, p *sent) // is called with the frames to the server
}

// message is the sequence of a message in the stream.
type message uint64

func (m message) Sequence() uint64 { return uint64(m) }
func (m message) Nak() error       { return nil }

// box is the driver's state of an inbox.
type box struct {
	name               string
	open, drains, gone bool
}

// sent is a pull that was sent.
type sent struct {
	name, reply string
	ib          *Inbox
	req         wire.Request
	at          At
	answered    bool // with a status other than a heartbeat
}

func newWorld(t *testing.T, lim Limits, slots int) *world {
	w := &world{t: t, e: New("b", lim, slots, 1), boxes: map[*Inbox]*box{}, taken: map[*Demand][]Message{}}
	w.onWire = func(*Effect, *sent) {}
	w.e.rng = rand.New(least{}) // each back-off is four fifths of its mean
	return w
}

// least is a source of zeros.
type least struct{}

func (least) Uint64() uint64 { return 0 }

func (w *world) must(ok bool, format string, args ...any) {
	if !ok {
		w.t.Helper()
		w.t.Fatalf(format, args...)
	}
}

// act carries out the engine's effects.
func (w *world) act() {
	for batch := w.e.Effects(nil); len(batch) > 0; batch = w.e.Effects(batch) {
		for i := range batch {
			w.log = append(w.log, w.perform(&batch[i]))
		}
	}
	w.check()
}

// perform carries out one effect and returns its text.
func (w *world) perform(f *Effect) string {
	d := f.Demand
	switch f.Kind {
	case Nak:
		w.naks = append(w.naks, f.Msg)
		return fmt.Sprint("nak ", f.Msg)
	case Wake:
		w.must(d.Done, "%v is woken and not done", d.Ref)
		return fmt.Sprint(d.Ref, "=", list(d.Got), errText("!", d.Err))
	case Deliver:
		w.taken[d] = append(w.taken[d], f.Msgs...)
		return fmt.Sprint(d.Ref, "=", list(f.Msgs), errText("!", f.Err), map[bool]string{true: " end"}[f.Done])
	case Problem:
		if f.Err == nil {
			return fmt.Sprint(d.Ref, " healthy")
		}
		return fmt.Sprint(d.Ref, errText(" ", f.Err))
	case PinChanged:
		return map[bool]string{true: "pin ", false: "unpin "}[f.Pin.Gained] + f.Pin.ID
	case Doubt:
		return "doubt"
	case Prove:
		w.began = w.now
		return "prove"
	}
	return w.performOnInbox(f)
}

func (w *world) performOnInbox(f *Effect) (text string) {
	ib, b := f.Inbox, w.boxes[f.Inbox]
	if b == nil {
		b = &box{name: fmt.Sprint("i", len(w.boxes)+1)}
		w.boxes[ib] = b
	}
	var p *sent
	w.must(!b.gone && !b.drains && (b.open || f.Kind == Send), "%s: effect %d with %+v", b.name, f.Kind, *b)
	switch f.Kind {
	case Unsubscribe:
		b.gone = true
		text = "unsub " + b.name
	case Drain:
		b.drains = true
		w.draining = append(w.draining, ib)
		text = "drain " + b.name
	default:
		p = w.send(f)
		if !b.open {
			b.open = true
			text = "sub " + b.name + "; "
		}
		text += fmt.Sprint(p.name, " ", b.name, " ", pullText(f))
	}
	w.onWire(f, p)
	return text
}

// send sends a pull that the server can take, and whose answers arrive.
func (w *world) send(f *Effect) *sent {
	ib, r := f.Inbox, f.Pull
	p := &sent{name: fmt.Sprint("p", len(w.pulls)+1), reply: f.Reply, ib: ib, req: *r, at: w.now}
	pooled := !ib.single && ib.Subject == ib.Prefix+"*" && strings.HasPrefix(f.Reply, ib.Prefix)
	w.must(f.Reply == ib.Subject || pooled, "%s does not listen to %s", ib.Subject, f.Reply)
	for _, o := range w.pulls {
		both := r.NoWait && r.Expires == 0 && o.req.NoWait && o.req.Expires == 0 && w.now-o.at <= replyLife
		w.must(o.ib != ib || o.reply != p.reply || both && !o.answered, "%s has the reply subject of %s", p.name, o.name)
	}
	w.must(r.Batch > 0 && 2*r.Heartbeat <= r.Expires && r.Expires >= 0 && (r.NoWait || r.Expires > 0), "the server refuses %+v", *r)
	w.must(!w.e.down && !w.e.closed, "a pull without a connection, or after Close")
	if open := ib.pull; open != nil && open.probe() {
		w.must(open.owner.onOrder(w.now).inDoubt < mostSilent, "%s is sent while two silent pulls are in doubt", p.name)
	}
	if open := ib.pull; open != nil && open.owner != nil && r.MaxBytes > refreshBytes && open.owner.Bytes > 0 &&
		!w.e.limits.Pinned { // a server sends no more for pulls from before the client got the pin
		d := open.owner
		bytes := d.stand.heldBytes + d.onOrder(w.now).bytes
		w.must(bytes <= d.Bytes, "%d bytes are held or on order", bytes)
	}
	w.pulls = append(w.pulls, p)
	return p
}

// status brings a status for p.
func (w *world) status(p *sent, s wire.Status) {
	p.answered = p.answered || s.Code != 100
	w.e.Status(w.now, p.ib, p.reply, s)
}

func pullText(f *Effect) string {
	r := f.Pull
	text := fmt.Sprint(r.Batch)
	add := func(set bool, parts ...any) {
		if set {
			text += " " + fmt.Sprint(parts...)
		}
	}
	add(r.NoWait && r.Expires == 0, "now")
	add(r.NoWait && r.Expires > 0, "once")
	add(r.Expires > 0, r.Expires)
	add(r.Heartbeat > 0, "hb", r.Heartbeat)
	add(r.MaxBytes > 0, "mb", r.MaxBytes)
	add(r.Group != "", "g=", r.Group)
	add(r.Priority > 0, "prio=", r.Priority)
	add(r.ID != "", "id=", r.ID)
	return text
}

func list(ms []Message) string {
	return strings.ReplaceAll(strings.Trim(fmt.Sprint(ms), "[]"), " ", ",")
}

func errText(before string, err error) string {
	if err == nil {
		return ""
	}
	switch err := err.(type) { //nolint:errorlint // the engine's own, not wrapped
	case *Timeout:
		return before + "timeout" + errText(":", err.Cause)
	case *Refused:
		for name, s := range statuses {
			if s.Code == err.Status.Code && s.Description == err.Status.Description {
				return before + name
			}
		}
	}
	return before + cmp.Or(map[error]string{ErrEmpty: "empty", ErrSilent: "silent", ErrLost: "lost"}[err], err.Error())
}

// statuses are the server's statuses, by short names.
var statuses = map[string]wire.Status{
	"100": status(100, "Idle Heartbeat"), "400": status(400, "Bad Request"), "404": status(404, "No Messages"),
	"408": status(408, "Request Timeout"), "pending": status(408, "Requests Pending"), "interest": status(408, "Interest Expired"),
	"batch": status(409, "Batch Completed"), "bytes": status(409, "Message Size Exceeds MaxBytes"),
	"limit": status(409, "Exceeded MaxRequestBatch of 5"), "waiting": status(409, "Exceeded MaxWaiting"),
	"deleted": status(409, "Consumer Deleted"), "push": status(409, "Consumer is push based"),
	"leader": status(409, "Leadership Change"), "shutdown": status(409, "Server Shutdown"),
	"423": status(423, "Nats-Pin-Id mismatch"), "wrongpin": status(423, "Nats-Wrong-Pin-Id"), "412": status(412, "Required Api Level"),
	"lower": status(409, "consumer deleted"), "longer": status(409, "Exceeded MaxRequestExpires of 1s"),
	"larger": status(409, "Exceeded MaxRequestMaxBytes of 100"),
	"empty":  status(408, ""), "503": status(503, ""), "other": status(499, "New"),
}

func status(code int, description string) wire.Status {
	s, _ := wire.ParseStatus(map[string][]string{wire.HeaderStatus: {strconv.Itoa(code)}, wire.HeaderDescription: {description}})
	return s
}

// check checks the invariants: the accounts of pulls, demands and free slots, and that each open
// pull and demand has an end.
func (w *world) check() {
	e, onOrder := w.e, 0
	ends := func(at At) bool { return e.NextTick() != 0 && e.NextTick() <= max(at, w.now) }
	for _, s := range e.shares {
		need, covered := map[*pull]int{}, map[*pull]int{}
		for _, d := range s.demands {
			w.must(!d.Done && d.share == s, "%v is done, or in another share group", d.Ref)
			w.must(d.Deadline == 0 || ends(d.Deadline), "nothing ends %v at its deadline", d.Ref)
			need[d.pull] += d.Want
			covered[d.pull]++
			w.must(d.stand == nil || d.stand.held >= 0 && d.stand.heldBytes >= 0, "%+v", d.stand)
		}
		for _, p := range s.pulls {
			onOrder += p.left
			w.must(p.left > 0 && p.inbox.pull == p && p.share == s && p.inbox.number == 0, "a pull that is over is open: %+v", p.req)
			w.must(p.need == need[p] && p.demands == covered[p], "a pull covers %d for %d demands: %+v", p.need, p.demands, p.req)
			w.must(e.down || ends(p.deadline) && (!p.inDoubt || e.Proving() || e.closed), "nothing ends a pull at %v: %+v", p.deadline, p.req)
		}
	}
	subscribed := 0
	for i, ib := range e.leaving.inboxes {
		onOrder += ib.reserved
		w.must(ib.number > 0 && ib.pull == nil && ib.reserved >= 0, "%s was not given up", w.boxes[ib].name)
		w.must(i == 0 || e.leaving.inboxes[i-1].number < ib.number, "%s is before one that was given up earlier", w.boxes[ib].name)
		if !ib.drains {
			subscribed++
			w.must(ib.reserved > 0 && ends(ib.leftAt+leftMost) && e.Proving(), "nothing ends %s", w.boxes[ib].name)
		}
	}
	w.must(len(e.leaving.held) == 0 || subscribed > 0, "nothing hands back %v", e.leaving.held)
	c := &e.capacity
	w.must(len(e.leaving.inboxes)-subscribed == len(w.draining), "%d inboxes drain, not %d", len(w.draining), len(e.leaving.inboxes)-subscribed)
	w.must(c.free >= 0 && c.free == c.slots-onOrder, "%d of %d slots free with %d on order", c.free, c.slots, onOrder)
	if !e.down && !e.closed {
		w.checkWaits()
	}
}

// checkWaits checks that each demand without a pull waits for an event that will occur.
func (w *world) checkWaits() {
	e := w.e
	at := func(t At) bool { return t > w.now && e.NextTick() != 0 && e.NextTick() <= t }
	c := &e.capacity
	noSlots := c.awaited && c.free < 1
	for _, s := range e.shares {
		looks := slices.ContainsFunc(s.pulls, func(p *pull) bool { return p.kind == noWait && !p.ended && !p.silent })
		for _, d := range s.demands {
			waits := at(s.retryAt) || noSlots
			if d.Mode != Standing {
				w.must(d.pull != nil || waits || looks && !d.long, "nothing is done for %v: %+v", d.Ref, e.capacity)
			} else if d.stand.held == 0 && !slices.ContainsFunc(s.pulls, func(p *pull) bool { return p.owner == d && !p.silent }) {
				waits = waits || d.stand.probing && (at(d.stand.retryAt) || d.onOrder(w.now).inDoubt >= mostSilent)
				w.must(waits, "nothing is done for %v: %+v %+v", d.Ref, *d.stand, e.capacity)
			}
		}
	}
}

// pass lets time go by until to, and the deadlines on the way.
func (w *world) pass(to At) {
	from := w.now
	for due := w.e.NextTick(); due != 0 && due <= to; due = w.e.NextTick() {
		w.now = max(w.now, due)
		n := len(w.log)
		w.e.Tick(w.now)
		w.act()
		if len(w.log) > n {
			w.log[n] = fmt.Sprintf("@%v %s", w.now-from, w.log[n])
		}
		next := w.e.NextTick()
		w.must(next == 0 || next > w.now, "a tick at %v has the next one at %v", w.now, next)
	}
	w.now = to
}

// drained reports that nothing more arrives on ib.
func (w *world) drained(ib *Inbox) {
	w.boxes[ib].gone = true
	w.draining = slices.DeleteFunc(w.draining, func(o *Inbox) bool { return o == ib })
	w.e.Drained(w.now, ib)
	w.act()
}

var errClosed = errors.New("closed")

// end closes the engine and checks that nothing is left.
func (w *world) end() {
	w.e.Close(w.now, errClosed)
	w.act()
	for len(w.draining) > 0 {
		w.drained(w.draining[0])
	}
	_, outstanding := w.e.Stats()
	w.must(outstanding == 0 && !w.e.Busy() && !w.e.Left(w.e.Retired()) && w.e.closed, "%d messages are awaited after the end", outstanding)
	for _, b := range w.boxes {
		w.must(b.gone || !b.open, "%s is left", b.name)
	}
	for _, d := range w.demands {
		w.must(d.Done, "%v is not done", d.Ref)
	}
	w.pass(w.now + time.Hour)
	w.must(w.e.NextTick() == 0 && len(w.e.out.list) == 0, "something is left to do")
}

// No-wait pulls that follow each other have one reply subject for replyLife; send checks that no others do.
func TestReplySubjects(t *testing.T) {
	w := newWorld(t, Limits{}, 1000)
	for i, text := range []string{"post a some 1 5s", "p1 msg 1", "+100ms", "post b some 1 5s", "p2 msg 2", "+1ms", "post c some 1 5s"} {
		w.event(strings.Fields(text))
		w.act()
		w.must(i < 6 || w.pulls[0].reply == w.pulls[1].reply && w.pulls[1].reply != w.pulls[2].reply, "%+v", w.pulls)
	}
}
