package natstest

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/nats-io/nats.go"
)

// Data is a message as a consumer delivers it. It is routed by the pull's reply subject, but has the subject under which it was stored.
type Data struct {
	// Subject is the subject under which the message was stored.
	Subject string
	// AckReply is its reply subject; see the function [AckReply].
	AckReply string
	// Header of the message, sent with sorted keys.
	Header nats.Header
	// RawHeader is sent as it is instead of Header. It includes the version
	// line and the empty line at the end.
	RawHeader []byte
	// Body of the message.
	Body []byte
}

// Deliver sends a message, under its own subject, to the subscriptions to reply. It reports whether there are any.
func (p *Peer) Deliver(reply string, m Data) bool {
	header := m.RawHeader
	if header == nil {
		header = EncodeHeader(m.Header)
	}
	return p.route(nil, reply, frame{subject: m.Subject, reply: m.AckReply, header: header, body: m.Body})
}

// Status sends a status frame to the subscriptions to reply, and reports whether there are any. The pairs in kv become headers.
func (p *Peer) Status(reply string, code int, desc string, kv ...string) bool {
	header := fmt.Appendf(nil, "NATS/1.0 %d", code)
	if desc != "" {
		header = fmt.Appendf(header, " %s", desc)
	}
	header = append(header, "\r\n"...)
	for pair := range slices.Chunk(kv, 2) {
		header = fmt.Appendf(header, "%s: %s\r\n", pair[0], pair[1])
	}
	header = append(header, "\r\n"...)
	return p.route(nil, reply, frame{subject: reply, header: header})
}

// NoResponders sends the status 503, as a server does if the subject of a request has no subscription. A server names the subject in a
// header. Without subject, the header is omitted.
func (p *Peer) NoResponders(reply string, subject ...string) bool {
	var kv []string
	if len(subject) > 0 {
		kv = []string{"Nats-Subject", subject[0]}
	}
	return p.Status(reply, 503, "", kv...)
}

// Reply answers a request with a plain message.
func (p *Peer) Reply(reply string, body []byte) bool {
	return p.route(nil, reply, frame{subject: reply, body: body})
}

// HasInterest reports whether a client is subscribed to the subject, as far as JetStream knows.
func (p *Peer) HasInterest(subject string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.receivers(nil, subject, true)) > 0
}

// frame is a message on its way to a client.
type frame struct {
	subject, reply string
	header, body   []byte
}

func (f frame) encode(sid string) []byte {
	verb, sizes := "MSG", fmt.Sprintf("%d", len(f.body))
	if f.header != nil {
		verb, sizes = "HMSG", fmt.Sprintf("%d %d", len(f.header), len(f.header)+len(f.body))
	}
	reply := ""
	if f.reply != "" {
		reply = f.reply + " "
	}
	b := fmt.Appendf(nil, "%s %s %s %s%s\r\n", verb, f.subject, sid, reply, sizes)
	return append(append(append(b, f.header...), f.body...), "\r\n"...)
}

// EncodeHeader returns a header as it is sent, with sorted keys. It returns nil for an empty header.
func EncodeHeader(header nats.Header) []byte {
	if len(header) == 0 {
		return nil
	}
	var b bytes.Buffer
	b.WriteString("NATS/1.0\r\n")
	for _, key := range slices.Sorted(maps.Keys(header)) {
		for _, value := range header[key] {
			fmt.Fprintf(&b, "%s: %s\r\n", key, value)
		}
	}
	b.WriteString("\r\n")
	return b.Bytes()
}

// route sends a frame to the subscriptions that match subject. from is the client that published it, or nil for the peer itself.
func (p *Peer) route(from *peerConn, subject string, f frame) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if from == nil && p.link.stalled {
		known := len(p.receivers(nil, subject, true)) > 0
		if known {
			p.link.down = append(p.link.down, routed{subject, f})
		}
		return known
	}
	return f.send(p.receivers(from, subject, false))
}

// send sends a frame to subscriptions, and reports whether there are any. The peer's mutex must be held.
func (f frame) send(subs []*peerSub) bool {
	for _, sub := range subs {
		sub.conn.send(f.encode(sub.sid))
		// A server counts every frame, including statuses, and ends the subscription with the last one.
		sub.delivered++
		if sub.max > 0 && sub.delivered >= sub.max {
			sub.conn.drop(sub)
		}
	}
	return len(subs) > 0
}

// receivers returns the subscriptions that get a message on subject: all without a queue, and for each queue, the one that got the fewest
// messages so far. far selects the subscriptions that JetStream's server knows instead of those of the clients' server.
func (p *Peer) receivers(from *peerConn, subject string, far bool) []*peerSub {
	var subs []*peerSub
	queues := map[string]int{} // queue and its subject to the place in subs
	for _, c := range p.conns {
		if c == from && !c.echo || !c.open() {
			continue
		}
		for _, sub := range c.subs {
			if known := far && sub.far || !far && sub.near; !known || !strings.HasPrefix(subject, sub.literal) || !SubjectMatches(sub.subject, subject) {
				continue
			}
			queue := sub.queue + " " + sub.subject
			i, found := queues[queue]
			switch {
			case sub.queue == "":
				subs = append(subs, sub)
			case !found:
				queues[queue] = len(subs)
				subs = append(subs, sub)
			case sub.delivered < subs[i].delivered:
				subs[i] = sub
			}
		}
	}
	return subs
}

func (p *Peer) subscribe(c *peerConn, op Op) {
	p.mu.Lock()
	defer p.mu.Unlock()
	literal := op.Subject
	if i := strings.IndexAny(literal, "*>"); i >= 0 {
		literal = literal[:i]
	}
	c.subs = append(c.subs, &peerSub{conn: c, subject: op.Subject, literal: literal, queue: op.Queue, sid: op.SID, near: true, far: !p.link.stalled})
}

func (p *Peer) unsubscribe(c *peerConn, op Op) {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.IndexFunc(c.subs, func(sub *peerSub) bool { return sub.sid == op.SID })
	if i < 0 {
		return
	}
	sub := c.subs[i]
	if op.Max > sub.delivered {
		sub.max = op.Max
		return
	}
	if sub.near = false; !p.link.stalled {
		c.drop(sub)
	}
}

// drop ends a subscription. The peer's mutex must be held.
func (c *peerConn) drop(sub *peerSub) {
	c.subs = slices.DeleteFunc(c.subs, func(other *peerSub) bool { return other == sub })
}
