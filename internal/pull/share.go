package pull

import "slices"

// share is a share group: the demands with equal terms, which share pulls and so messages.
type share struct {
	terms Terms
	// unshared is set for a demand with MaxBytes or over a limit of the consumer, which shares its pulls with no other.
	unshared bool

	demands []*Demand // in the order in which they were posted
	pulls   []*pull   // open
	stash   []stashed // ack policy none: late messages in stream order, for the next demand
	retryAt At        // no pull before this
	tries   int       // failures in a row
	// claimed is set if the server ended a one-shot at once without messages, because pulls of other clients wait for all
	// that is pending. It is reset when a message comes or no demand is left. A long pull is served in its turn.
	claimed bool
}

// stashed is a message that no demand waits for and that cannot be handed back.
type stashed struct {
	msg  Message
	size int
}

// spareShares is how many share groups are kept for the next calls with their terms.
const spareShares = 32

// shareOf finds or makes the share group for terms.
func (e *Engine) shareOf(terms Terms, unshared bool) *share {
	if !unshared {
		for _, s := range e.shares {
			if s.terms == terms && !s.unshared {
				return s
			}
		}
	}
	e.forgetShares() // otherwise those of ended calls accumulate
	s := &share{terms: terms, unshared: unshared}
	e.shares = append(e.shares, s)
	return s
}

// forgetShares drops the unshared groups of calls that have ended, and unused others if there are many.
func (e *Engine) forgetShares() {
	crowded := len(e.shares) > spareShares
	kept := e.shares[:0]
	for _, s := range e.shares {
		if len(s.demands) > 0 || len(s.pulls) > 0 || len(s.stash) > 0 || !s.unshared && !crowded {
			kept = append(kept, s)
		}
	}
	clear(e.shares[len(kept):])
	e.shares = kept
}

// next is the demand that the next message goes to: the first that waits, then the standing demand that asked
// for it, then any other.
func (s *share) next(owner *Demand) *Demand {
	var standing *Demand
	for _, d := range s.demands {
		switch {
		case d.Mode != Standing:
			if d.wants() {
				return d
			}
		case standing == nil || d == owner:
			standing = d
		}
	}
	return standing
}

// without returns list without x.
func without[T comparable](list []T, x T) []T {
	return slices.DeleteFunc(list, func(y T) bool { return y == x })
}

// late takes a message for which no demand in its share group waits. Another demand gets it, or it is handed back to the
// server, or it waits for the next demand with these terms. An unshared group ends with its call, so late returns the
// group that other calls find.
func (e *Engine) late(terms Terms, m Message, size int) *share {
	s := e.shareOf(terms, false)
	switch d := s.next(nil); {
	case d != nil:
		e.deliver(d, m, size)
	case e.closed || !e.limits.AckNone:
		e.handBack(m)
	default:
		// A call that ends can return messages that are older than some that have arrived since.
		i, _ := slices.BinarySearchFunc(s.stash, m.Sequence(), func(a stashed, seq uint64) int { return int(a.msg.Sequence() - seq) })
		s.stash = slices.Insert(s.stash, i, stashed{m, size})
	}
	return s
}

// handBack returns a message to the server. With ack policy none the server takes none back, so the message is lost.
func (e *Engine) handBack(m Message) {
	if e.limits.AckNone {
		e.stats.Dropped++
		return
	}
	e.stats.HandedBack++
	e.do(Effect{Kind: Nak, Msg: m})
}

// Return takes back a message that a standing demand with these terms got and does not need, if it cannot
// be handed back to the server.
func (e *Engine) Return(now At, terms Terms, m Message, size int) {
	e.cover(now, e.late(terms, m, size))
}

// unstash gives a demand the messages that came late for others.
func (e *Engine) unstash(d *Demand) {
	if !e.limits.AckNone {
		return
	}
	s := d.share
	if s.unshared {
		s = e.shareOf(s.terms, false)
	}
	for len(s.stash) > 0 && d.wants() && !d.Done {
		late := s.stash[0]
		if s != d.share && d.bytes+late.size > d.MaxBytes {
			return
		}
		s.stash = s.stash[1:]
		e.deliver(d, late.msg, late.size)
	}
}
