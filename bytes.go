package jetpull

// What a standing claim holds and has on order is bounded in bytes: by
// PrefetchBytes, or by windowBytes where the window adapts. Each pull then carries a
// max_bytes, and what it may still bring is reserved for it.
//
// With PrefetchBytes a pull asks for all that is free, and the next one waits until
// half of it is. An adaptive window shares its bytes out among pulls that overlap, for
// they are far more than most windows need: each takes half of what is free, less if
// its batch is but a part of what the window lacks, and the next waits only where
// little is left.

const (
	// windowBytes is how much an adaptive window may hold and have on order.
	windowBytes = 64 << 20
	// leastShare is the least that a pull of an adaptive window asks for, and
	// leastFree the least that is free when one goes out.
	leastShare = 1 << 20
	leastFree  = windowBytes / 8
	// bytesLot is how much is done with, at the most, before the rules of an
	// adaptive window hear of it.
	bytesLot = 1 << 20
)

// byteBound is the limit of what a standing claim holds and has on order.
type byteBound struct {
	byteWindow int  // 0: no limit
	shared     bool // among pulls that overlap
	// next is what the next pull of a shared one asks for at least, because the
	// message that is next did not fit half of it; 0: nothing is known of it.
	next int
	// oversize tells that the next message does not fit what a pull may ask for:
	// pull it alone.
	oversize bool
	draining int // reserved for what may still arrive of pulls that are over
}

// byteBound is the byte bound of a call: the user's, or that of an adaptive window.
func (s *streamSettings) byteBound() byteBound {
	if s.prefetchBytes == 0 && s.prefetch == 0 {
		return byteBound{byteWindow: windowBytes, shared: true}
	}
	return byteBound{byteWindow: s.prefetchBytes}
}

// reserved is what p may still bring. What comes alone has all for itself.
func (s *standing) reserved(p *pull) int {
	left := p.req.MaxBytes - p.bytes
	switch {
	case p.req.MaxBytes == 0:
		return s.byteWindow
	case p.ended:
		left -= int(min(p.ending.PendingBytes, int64(left)))
	}
	return max(0, left)
}

// free is how many bytes are neither held nor reserved.
func (s *standing) free(o onOrder) int { return s.byteWindow - s.heldBytes - o.bytes }

// share is how many bytes a pull asks for that is to bring batch of the need
// messages that the window lacks; 0: none may go out now.
func (s *standing) share(batch, need int, o onOrder) int {
	free := s.free(o)
	switch {
	case !s.shared && (free < 1 || o.messages+o.promised > 0 && free < s.byteWindow/2):
		return 0
	case !s.shared:
		return free
	case free < max(leastFree, s.next):
		return 0
	}
	return max(leastShare, s.next, int(float64(free)/2*float64(batch)/float64(max(batch, need))))
}

// lonely reports whether the message that fits no pull can be asked for now: with
// PrefetchBytes when nothing else is held. What an adaptive window holds it is not
// told of to the last byte, but it knows how much must be free.
func (s *standing) lonely(o onOrder) bool {
	if o.messages+o.promised > 0 {
		return false
	}
	if s.shared {
		return s.free(o) >= s.next
	}
	return s.held == 0
}

// tooSmall notes that the next message is larger than the bytes that a pull asked
// for; most is what one may ask for, 0: no limit. Each time that it is twice as much,
// so there is an end to it.
func (s *standing) tooSmall(asked, most int) {
	if !s.shared {
		s.oversize = true
		return
	}
	s.next = max(s.next, 2*asked)
	if full := windowBytes - bytesLot; s.next > full {
		s.next, s.oversize = full, true
	}
	if most > 0 && s.next > most {
		s.oversize = true
	}
}

// byteReserve is what may still arrive, for a standing claim, on an inbox that is
// being drained.
type byteReserve struct {
	owner *claim
	bytes int
}

// reserve keeps what p, which is over, may still bring. With PrefetchBytes a pull has
// all that is free, and nothing would be left for the next.
func (b *byteReserve) reserve(p *pull) {
	if c := p.owner; c != nil && c.stand.shared {
		b.owner, b.bytes = c, c.stand.reserved(p)
		c.stand.draining += b.bytes
	}
}

// unreserve lets go of n bytes, which have arrived or will not, and reports whether
// there were any.
func (b *byteReserve) unreserve(n int) bool {
	n = min(n, b.bytes)
	if n > 0 {
		b.bytes -= n
		b.owner.stand.draining -= n
	}
	return n > 0
}
