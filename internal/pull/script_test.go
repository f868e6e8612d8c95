package pull

import (
	"cmp"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// play plays a script. Between bars there are events, and behind an arrow the effects that
// must come of the last of them, in their order. Those of an event with a ~ do not count.
//
//	limits batch=9 expires=1s bytes=9 waiting=9 acknone pinned ttl=6s
//	slots 10                   of the channel
//	post a some 3 5s           or fill; nowait chosen mb=9 g=x prio=3 hb=1s reads
//	post s stand 10            a window of 10; workers=9 bytes=99 exact mb=9 g=x hb=1s
//	p1 msg 1 2 3               what p1 brings; size=9 pin=x, which those before a - do not have
//	p1 404 left=2 bytes=0      a status of statuses, with what is pending of the pull
//	+5s                        time passes: @2s is an effect after 2 s
//	credit s 3                 window=9 starving bytes=300 serial=2
//	trim                       nothing is held
//	cancel a, down, up, drained i1, sendfailed p1 [fatal], fail [final], close
//	configured [batch=… late], unreadable [gone], return 7 [g=x], givenup x [g=x]
//
// A message has 100 bytes. An effect is sub i1, unsub i1, drain i1, nak 1, read,
// pin x, unpin x, a=1,2!error for a demand that is done or got messages, "s error"
// and "s healthy" for a standing one, and for a pull its name and inbox, its batch, now
// (no_wait) or once (no_wait with expires), and the other fields.
func play(t *testing.T, script string) {
	w := newWorld(t, Limits{}, 1000)
	for line := range strings.FieldsFuncSeq(script, func(r rune) bool { return r == '\n' || r == '|' }) {
		events, effects, _ := strings.Cut(line, "->")
		w.log = nil
		for _, event := range strings.Split(events, ";") {
			w.must(len(w.log) == 0, "%s\n before %s: %s", line, event, strings.Join(w.log, "; "))
			event, prepares := strings.CutPrefix(strings.TrimSpace(event), "~")
			if ws := words(strings.Fields(event)); len(ws) > 0 {
				w.event(ws)
				w.act()
			}
			if prepares {
				w.log = nil
			}
		}
		got, want := strings.Join(w.log, "; "), strings.Join(strings.Fields(effects), " ")
		w.must(got == want, "%s\n got: %s\nwant: %s", events, got, want)
	}
	w.end()
}

// words are those of an event: names, flags and key=value.
type words []string

func (ws words) has(flag string) bool { return slices.Contains(ws, flag) }

func (ws words) value(key string) string {
	for _, w := range ws {
		if v, ok := strings.CutPrefix(w, key+"="); ok {
			return v
		}
	}
	return ""
}

func (ws words) number(key string, other int) int {
	return number(cmp.Or(ws.value(key), strconv.Itoa(other)))
}

func (ws words) duration(key string) time.Duration {
	return parsed(time.ParseDuration(cmp.Or(ws.value(key), "0s")))
}

func number(s string) int { return parsed(strconv.Atoi(s)) }

func parsed[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func (ws words) err(flag string) error {
	if ws.has(flag) {
		return errors.New(flag)
	}
	return nil
}

func (ws words) limits() Limits {
	return Limits{
		Batch: ws.number("batch", 0), Expires: ws.duration("expires"), Bytes: ws.number("bytes", 0), Waiting: ws.number("waiting", 0),
		AckNone: ws.has("acknone"), Pinned: ws.has("pinned"), PinTTL: ws.duration("ttl"),
	}
}

func (ws words) terms() Terms {
	return Terms{Group: ws.value("g"), Priority: ws.number("prio", 0), Heartbeat: ws.duration("hb")}
}

// event brings one event of a script to the engine.
func (w *world) event(ws words) {
	switch verb := ws[0]; verb {
	case "limits":
		w.e.limits = ws.limits()
	case "slots":
		w.e.capacity = capacity{slots: number(ws[1]), room: number(ws[1])}
	case "post":
		w.post(ws)
	case "credit":
		d, n := w.demand(ws[1]), number(ws[2])
		w.e.Credit(w.now, d, Credit{n, ws.number("bytes", 100*n), ws.number("window", d.stand.window), ws.has("starving"), uint64(ws.number("serial", 0))})
	case "trim":
		w.e.Trim()
	case "cancel":
		w.e.Cancel(w.now, w.demand(ws[1]), errors.New("canceled"))
	case "down":
		w.e.Disconnected()
	case "up":
		w.e.Reconnected(w.now)
	case "drained":
		for ib, b := range w.boxes {
			if b.name == ws[1] {
				w.must(b.drains && !b.gone, "%s does not drain", b.name)
				w.drained(ib)
			}
		}
	case "sendfailed":
		w.e.SendFailed(w.now, w.pull(ws[1]).ib, ws.err("fatal"))
	case "configured":
		w.e.Configured(w.now, ws.limits(), w.e.Epoch()-map[bool]uint64{true: 1}[ws.has("late")])
	case "unreadable":
		w.e.Unreadable(w.now, ws.err("gone"))
	case "return":
		w.e.Return(w.now, ws.terms(), message(number(ws[1])), 100)
	case "givenup":
		w.e.PinLost(ws.value("g"), ws[1])
	case "fail":
		w.e.Fail(w.now, errors.New("failed"), ws.has("final"))
	case "close":
		w.e.Close(w.now, errors.New("closed"))
	default:
		if after, ok := strings.CutPrefix(verb, "+"); ok {
			w.pass(w.now + parsed(time.ParseDuration(after)))
			return
		}
		w.frame(w.pull(verb), ws[1:])
	}
}

// frame brings what arrived for p: messages, or a status.
func (w *world) frame(p *sent, ws words) {
	if ws[0] != "msg" {
		s, ok := statuses[ws[0]]
		w.must(ok, "there is no status %s", ws[0])
		if left := ws.number("left", -1); left >= 0 {
			s.HasPending, s.PendingMsgs, s.PendingBytes = true, int64(left), int64(ws.number("bytes", 0))
		}
		w.e.Status(w.now, p.ib, p.token, s)
		return
	}
	from := slices.Index(ws, "-")
	for i, m := range ws {
		if i == 0 || i == from || strings.Contains(m, "=") {
			continue
		}
		pin := ws.value("pin")
		if i < from {
			pin = ""
		}
		w.e.Message(w.now, p.ib, message(number(m)), ws.number("size", 100), pin)
	}
}

func (w *world) post(ws words) {
	d := &Demand{Ref: ws[1], Reading: ws.has("reads")}
	d.Terms, d.NoWait, d.Chosen, d.MaxBytes = ws.terms(), ws.has("nowait"), ws.has("chosen"), ws.number("mb", 0)
	if ws[2] == "stand" {
		d.Mode, d.Window, d.Workers = Standing, number(ws[3]), ws.number("workers", 0)
		d.Bytes = ByteWindow{Size: ws.number("bytes", 0), Exact: ws.has("exact")}
	} else {
		d.Mode, d.Want, d.Deadline = map[string]Mode{"some": Some, "fill": Fill}[ws[2]], number(ws[3]), w.now+parsed(time.ParseDuration(ws[4]))
	}
	w.demands = append(w.demands, d)
	w.e.Post(w.now, d)
}

func (w *world) demand(name string) *Demand {
	i := slices.IndexFunc(w.demands, func(d *Demand) bool { return d.Ref == name })
	w.must(i >= 0, "no demand %s", name)
	return w.demands[i]
}

func (w *world) pull(name string) *sent {
	i := slices.IndexFunc(w.pulls, func(p *sent) bool { return p.name == name })
	w.must(i >= 0, "no event or pull %s", name)
	return w.pulls[i]
}
