package jetpull

import "time"

// A status can promise messages that are still to come: on R3 they wait for a
// quorum that the status does not wait for. They can also be lost, as with a leader.

const (
	// promiseGrace is how long messages may take that a status has promised.
	promiseGrace = 2 * time.Second
	// promiseHold is how long they keep a standing claim from asking for others
	// instead. If they come after that, the window has that many more.
	promiseHold = 800 * time.Millisecond
)

// expected is until when the messages count as on order that the status promised
// which has ended p.
func (p *pull) expected() at { return p.deadline - promiseGrace + promiseHold }

// onOrder is what the pulls of a standing claim may still bring.
type onOrder struct {
	pulls, messages int // that are open
	knocks          int // pulls that bring nothing
	promising       int // pulls that the server has ended, and how many messages
	promised        int // of theirs are expected
	bytes           int // of all messages
}

func (c *claim) onOrder(now at) (o onOrder) {
	for _, p := range c.lane.pulls {
		switch {
		case p.owner != c:
			continue
		case p.ended && now >= p.expected():
			// It asks for others instead.
			if c.stand.byteWindow > 0 {
				o.bytes += c.stand.reserved(p) // which may still come
			}
			continue
		case p.knock:
			o.knocks++
			continue
		case p.ended:
			o.promising++
			o.promised += p.left
		default:
			o.pulls++
			o.messages += p.left
		}
		o.bytes += c.stand.reserved(p)
	}
	o.bytes += c.stand.draining
	return o
}

// manyPulls reports whether a claim is to send no more. The server has no pull any
// more that it has ended; but one that ended pull after pull with a promise must
// not be asked ever faster.
func (r *rules) manyPulls(o onOrder) bool {
	return o.pulls+o.knocks >= r.pullsAtOnce() || o.promising > r.pullsAtOnce()
}
