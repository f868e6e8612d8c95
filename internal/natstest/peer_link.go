package natstest

import "slices"

// farLink is the link between the clients' server and that of JetStream: the
// connection of a leaf node, a route or a gateway. While it is stalled, the data
// of both sides waits, in order, and nothing is closed. The clients' server handles
// SUB, UNSUB and PING as always. The other server uses the subscriptions that it
// knows. The peer's mutex guards farLink.
type farLink struct {
	stalled bool
	up      []arrival // for JetStream, including changes of subscriptions
	down    []routed  // for clients
}

// routed is a frame and the subject by which it is routed.
type routed struct {
	subject string
	frame
}

// Stall stalls the link between the clients' server and JetStream, or ends the stall. Waiting data then arrives at once.
func (p *Peer) Stall(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case on:
		p.link.stalled = true
	case p.link.stalled:
		p.in.put(arrival{}) // without a connection: the dispatcher ends the stall
	}
}

// waits reports whether the link is stalled. If it is, waits keeps the operation for later.
func (p *Peer) waits(a arrival) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.link.stalled {
		p.link.up = append(p.link.up, a)
	}
	return p.link.stalled
}

// flow ends a stall.
func (p *Peer) flow() {
	p.mu.Lock()
	up, down := p.link.up, p.link.down
	p.link = farLink{}
	for _, r := range down {
		r.send(p.receivers(nil, r.subject, false))
	}
	p.mu.Unlock()
	for _, a := range up {
		p.pass(a)
	}
}

// pass passes an operation to JetStream.
func (p *Peer) pass(a arrival) {
	switch a.op.Verb {
	case "PUB", "HPUB":
		p.publish(a)
	case "SUB", "UNSUB":
		p.mu.Lock()
		defer p.mu.Unlock()
		i := slices.IndexFunc(a.conn.subs, func(sub *peerSub) bool { return sub.sid == a.op.SID })
		switch {
		case i < 0:
		case a.op.Verb == "SUB":
			a.conn.subs[i].far = true
		case !a.conn.subs[i].near:
			a.conn.drop(a.conn.subs[i])
		}
	}
}
