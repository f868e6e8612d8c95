package jetpull

import (
	"cmp"
	"slices"
)

// away is a message of a line that was sent back for want of space. Those after
// it wait for it, so that it keeps its place.
type away struct {
	seq uint64
	due at // when the server is to deliver it again
}

func bySequence(a away, seq uint64) int { return cmp.Compare(a.seq, seq) }

// isLast reports whether the server delivers m never again, so that it must not
// go back.
func (d *dispatch) isLast(m *Msg) bool { return d.most > 0 && m.Delivered() >= d.most }

// sendBack takes h into a line that is full, in the place of the last one if that
// comes after it: what is nearest to its turn stays. It returns the message that
// goes back. The lock is held.
func (d *dispatch) sendBack(l *line, h held, wasAway bool) *Msg {
	out := h.m
	waiting := l.queue.all()
	if last := len(waiting) - 1; wasAway && last >= 0 && waiting[last].released &&
		waiting[last].m.Sequence() > h.m.Sequence() && !d.isLast(waiting[last].m) && d.takesPlace(l, &h, &waiting[last]) {
		out = waiting[last].m
		d.waited(&waiting[last])
		l.queue.remove(last)
		d.letWait(&h)
		l.insert(h, true)
	}
	if d.grace > 0 {
		seq := out.Sequence()
		if i, found := slices.BinarySearchFunc(l.away, seq, bySequence); found {
			l.away[i].due = l.until
		} else {
			l.away = slices.Insert(l.away, i, away{seq, l.until})
		}
	}
	return out
}

// isBack notes that seq has come, and reports whether it was away.
func (l *line) isBack(seq uint64) bool {
	i, found := slices.BinarySearchFunc(l.away, seq, bySequence)
	switch {
	case !found:
		return false
	case i == 0: // the usual case, and not to be slow where many are away
		l.away = l.away[1:]
	default:
		l.away = slices.Delete(l.away, i, i+1)
	}
	return true
}

// insert lets h wait: behind the others, or in its place if it was away or comes
// again.
func (l *line) insert(h held, wasAway bool) {
	if wasAway || h.again {
		l.insertInOrder(h)
		return
	}
	l.queue.push(h)
}

// insertInOrder lets h wait in stream order, behind what is the same message.
func (l *line) insertInOrder(h held) {
	seq := h.m.Sequence()
	i, _ := slices.BinarySearchFunc(l.queue.all(), seq, func(w held, seq uint64) int {
		if w.m.Sequence() > seq {
			return 1
		}
		return -1
	})
	l.queue.insert(i, h)
}

// waitForAway blocks a line whose next message is away, and reports whether it
// did. The lock is held.
func (d *dispatch) waitForAway(l *line) bool {
	if len(l.away) == 0 || d.stopped || l.queue.len() > 0 && l.queue.all()[0].m.Sequence() < l.away[0].seq {
		return false
	}
	first := l.away[0]
	// If it was due long ago, there was no room to ask for it until now.
	freed, bytes := d.block(l, first.seq, max(first.due, d.clock())+d.grace, false)
	d.loose += freed
	d.looseBytes += bytes
	return true
}

// giveUpAway forgets the messages that were due by then: they were delivered to
// another client, or never will be.
func (l *line) giveUpAway(then at) {
	l.away = slices.DeleteFunc(l.away, func(a away) bool { return a.due <= then })
}
