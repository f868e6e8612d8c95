package jetpull

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/jetpull/jetpull/internal/wire"
)

// FuzzClassify holds every status a server could send to what the rules rely
// on: each has a class, all but a heartbeat have a sentinel, and the error that
// a caller sees keeps code and text.
func FuzzClassify(f *testing.F) {
	for _, s := range statusTable {
		f.Add(s.code, s.desc)
	}
	f.Fuzz(func(t *testing.T, code int, desc string) {
		s := classify(wire.Status{Code: code, Description: desc})
		if (s.class == classAlive) != (code == 100) {
			t.Fatalf("status %d is alive: %v", code, s.class == classAlive)
		}
		if s.class == classAlive {
			return
		}
		if s.is == nil {
			t.Fatalf("status %d %q has no sentinel", code, desc)
		}
		err := s.err("subject")
		status, ok := errors.AsType[*StatusError](err)
		if !ok || status.Code != code || status.Description != desc || !errors.Is(err, s.is) {
			t.Fatalf("status %d %q became %v", code, desc, err)
		}
		if !strings.Contains(err.Error(), desc) {
			t.Fatalf("the text %q is not in %q", desc, err)
		}
	})
}

// FuzzAdvisory reads whatever is published on an advisory subject.
func FuzzAdvisory(f *testing.F) {
	f.Add(pinnedAdvisory+".S.C", []byte(`{"timestamp":"2026-11-20T10:00:00Z","stream":"S","consumer":"C","group":"g","pinned_id":"x"}`))
	f.Add(unpinnedAdvisory+".S.C", []byte(`{"reason":"admin"}`))
	f.Add("x", []byte(`null`))
	f.Fuzz(func(t *testing.T, subject string, body []byte) {
		a, err := parseAdvisory(&nats.Msg{Subject: subject, Data: body})
		if err != nil {
			if a != (PinAdvisory{}) {
				t.Fatalf("an advisory and an error: %+v, %v", a, err)
			}
			return
		}
		if !json.Valid(body) || a.Pinned != strings.HasPrefix(subject, pinnedAdvisory+".") {
			t.Fatalf("%q on %q became %+v", body, subject, a)
		}
	})
}

// FuzzFrames lets arbitrary frames arrive at an engine with a call under way.
// A frame with a reply is a message and nothing else; whatever comes, the
// accounts stay in order.
func FuzzFrames(f *testing.F) {
	f.Add("@", "", "404", "No Messages", "", "")
	f.Add("@", "", "408", "Request Timeout", "3", "0")
	f.Add("@", "", "409", "Batch Completed", "9223372036854775807", "1")
	f.Add("s.a", "$JS.ACK.S.C.1.1.1.1.1", "404", "No Messages", "0", "0")
	f.Add("@", "", "423", "Nats-Pin-Id mismatch", "-1", "x")
	f.Add("", "", "", "", "", "")
	f.Add(".", "", "100", "Idle Heartbeat", "", "")
	f.Fuzz(func(t *testing.T, subject, reply, code, desc, msgs, bytes string) {
		w := newWorld(t, limits{pinned: true})
		e := &engine{rules: w.r, sub: w.sub, inboxes: map[*nats.Subscription]*inbox{}}
		c := w.post(5, time.Second)
		p := w.pulled(pullQuick)[0]
		subject = strings.ReplaceAll(subject, "@", p.reply) // for the seeds
		sub := &nats.Subscription{}
		p.inbox.sub, e.inboxes[sub] = sub, p.inbox
		before := w.r.stats.messages
		for range 2 {
			e.take(w.now, &nats.Msg{Sub: sub, Subject: subject, Reply: reply, Header: nats.Header{
				wire.HeaderStatus: {code}, wire.HeaderDescription: {desc},
				wire.HeaderPendingMsgs: {msgs}, wire.HeaderPendingBytes: {bytes}, wire.HeaderPinID: {desc},
			}})
			w.did()
		}
		if got := w.r.stats.messages - before; reply != "" && got != 2 {
			t.Fatalf("%d of 2 messages arrived", got)
		}
		w.r.leave(w.now, c, nil)
		w.did()
		w.pass(10 * time.Second)
		w.drained()
		if w.r.room != allRoom {
			t.Fatalf("%d of %d room is left", w.r.room, allRoom)
		}
	})
}
