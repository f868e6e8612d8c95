package pull

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jetpull/jetpull/internal/natstest/script"
)

// play plays a script of package script. Its events are
//
//	limits batch=9 expires=1s bytes=9 waiting=9 acknone pinned ttl=6s
//	slots 10                   of the channel
//	post a some 3 5s           or fill; nowait chosen mb=9 g=x prio=3 hb=1s
//	post s stand 10            a window of 10; workers=9 bytes=99 mb=9 g=x hb=1s
//	p1 msg 1 2 3               what p1 brings; size=9 pin=x, which those before a - do not have
//	p1 404 left=2 bytes=0      a status of statuses, with what is pending of the pull
//	+5s                        time passes: @2s is an effect after 2 s
//	credit s 3                 window=9 starving bytes=300 serial=2
//	cancel a, down, up, drained i1, fail [final], close
//	answered                   the last request; a script without it has all answered at once
//	return 7 [g=x], givenup x [g=x]
//
// A message has 100 bytes. An effect is sub i1, unsub i1, drain i1, nak 1, doubt, prove,
// pin x, unpin x, a=1,2!error for a demand that is done or got messages, "s error"
// and "s healthy" for a standing one, and for a pull its name and inbox, its batch, now
// (no_wait) or once (no_wait with expires), and the other fields.
func play(t *testing.T, text string) {
	w := newWorld(t, Limits{}, 1000)
	answers := !strings.Contains(text, "answered")
	script.Play(t, text, func(ws script.Words) {
		w.event(ws)
		w.act()
		for answers && w.e.Proving() {
			w.answered()
			w.act()
		}
	}, func() []string {
		log := w.log
		w.log = nil
		return log
	})
	w.end()
}

func limits(ws script.Words) Limits {
	return Limits{
		Batch: ws.Number("batch", 0), Expires: duration(ws, "expires"), Bytes: ws.Number("bytes", 0), Waiting: ws.Number("waiting", 0),
		AckNone: ws.Has("acknone"), Replay: ws.Has("replay"), Pinned: ws.Has("pinned"), PinTTL: duration(ws, "ttl"),
	}
}

func terms(ws script.Words) Terms {
	return Terms{Group: ws.Value("g", ""), Priority: ws.Number("prio", 0), Heartbeat: duration(ws, "hb")}
}

func duration(ws script.Words, key string) time.Duration {
	return script.Duration(ws.Value(key, "0s"))
}

// event brings one event of a script to the engine.
func (w *world) event(ws script.Words) {
	switch verb := ws[0]; verb {
	case "limits":
		w.e.SetLimits(limits(ws))
	case "slots":
		w.e.capacity = capacity{slots: script.Number(ws[1]), free: script.Number(ws[1])}
	case "post":
		w.post(ws)
	case "credit":
		d, n := w.demand(ws[1]), script.Number(ws[2])
		w.e.Credit(w.now, d, Credit{
			n, ws.Number("bytes", 100*n), ws.Number("window", d.stand.window), ws.Number("pending", 0), ws.Has("starving"),
			uint64(ws.Number("serial", 0)),
		})
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
	case "answered":
		w.answered()
	case "return":
		w.e.Return(w.now, terms(ws), message(script.Number(ws[1])), 100)
	case "givenup":
		w.e.PinLost(ws.Value("g", ""), ws[1])
	case "fail":
		w.e.Fail(w.now, errors.New("failed"), ws.Has("final"))
	case "close":
		w.e.Close(w.now, errors.New("closed"))
	default:
		if strings.HasPrefix(verb, "+") {
			w.pass(w.now + script.Duration(verb))
			return
		}
		w.frame(w.pull(verb), ws[1:])
	}
}

// answered ends a request for proof, and begins another if that is needed.
func (w *world) answered() {
	w.e.Answered(w.now, w.began)
	if w.e.Proving() {
		w.began = w.now
		w.log = append(w.log, "prove")
	}
}

// frame brings what arrived for p: messages, or a status.
func (w *world) frame(p *sent, ws script.Words) {
	if ws[0] != "msg" {
		s, ok := statuses[ws[0]]
		w.must(ok, "there is no status %s", ws[0])
		if left := ws.Number("left", -1); left >= 0 {
			s.HasPending, s.PendingMsgs, s.PendingBytes = true, int64(left), int64(ws.Number("bytes", 0))
		}
		w.status(p, s)
		return
	}
	from := slices.Index(ws, "-")
	for i, m := range ws {
		if i == 0 || i == from || strings.Contains(m, "=") {
			continue
		}
		pin := ws.Value("pin", "")
		if i < from {
			pin = ""
		}
		w.e.Message(w.now, p.ib, message(script.Number(m)), ws.Number("size", 100), pin)
	}
}

func (w *world) post(ws script.Words) {
	d := &Demand{Ref: ws[1]}
	d.Terms, d.NoWait, d.Chosen, d.MaxBytes = terms(ws), ws.Has("nowait"), ws.Has("chosen"), ws.Number("mb", 0)
	if ws[2] == "stand" {
		d.Mode, d.Window, d.Workers = Standing, script.Number(ws[3]), ws.Number("workers", 0)
		d.Bytes = ws.Number("bytes", 0)
	} else {
		d.Mode, d.Want, d.Deadline = map[string]Mode{"some": Some, "fill": Fill}[ws[2]], script.Number(ws[3]), w.now+script.Duration(ws[4])
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
