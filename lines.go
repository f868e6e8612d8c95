package jetpull

// line is what is known of one key: one message of it is being handled or
// failed, and the others wait.
type line struct {
	queue   ring[held]
	blocked uint64 // stream sequence of the message that failed; 0: none
	since   at     // of the block
	until   at     // when the block is lifted though it has not come back
	kept    bool   // the message that failed is aside, and does not come again
	idle    bool   // the next message is held up by the fence alone
	away    []away // sent back for want of space, in stream order
}

// addLine makes the line of a key.
func (d *dispatch) addLine(key string) *line {
	l := d.spare
	if l == nil {
		l = &line{}
	}
	d.spare = nil
	d.lines[key] = l
	return l
}

// dropLine forgets the line of a key, but for its memory.
func (d *dispatch) dropLine(key string, l *line) {
	delete(d.lines, key)
	*l = line{queue: l.queue}
	d.spare = l
}

// settled lets the next message of h's key go.
func (d *dispatch) settled(h held) {
	if !d.lined {
		return
	}
	d.mu.Lock()
	defer d.release()
	d.advance(h.key)
}

// advance makes the next message of a line ready. The lock is held.
func (d *dispatch) advance(key string) {
	l := d.lines[key]
	if l == nil {
		return
	}
	l.blocked = 0
	if l.idle = d.fence != 0; l.idle {
		return
	}
	if d.waitForAway(l) {
		return
	}
	if l.queue.len() == 0 {
		d.dropLine(key, l)
		return
	}
	next := l.queue.pop()
	d.waited(&next)
	d.ready.push(next)
	if d.waiting > 0 {
		d.some.Signal()
	}
}

// failed blocks the line of h until h comes back, or until the given time. It
// returns how many messages, of how many bytes, no longer count against the
// window.
func (d *dispatch) failed(h held, until at) (freed, bytes int) { return d.hold(h, until, false) }

// hold is failed; kept tells that h is aside and does not come again.
func (d *dispatch) hold(h held, until at, kept bool) (freed, bytes int) {
	if !d.lined {
		return 0, 0
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	l := d.lines[h.key]
	if d.stopped { // what failed comes again elsewhere
		d.advance(h.key)
		return 0, 0
	}
	if l == nil {
		return 0, 0
	}
	seq := h.m.Sequence()
	waiting := l.queue.all()
	for i := range waiting {
		if waiting[i].m.Sequence() == seq { // it is back already
			d.ready.push(waiting[i])
			d.waited(&waiting[i])
			l.queue.remove(i)
			d.some.Signal()
			return 0, 0
		}
	}
	return d.block(l, seq, until, kept)
}

// block lets l wait for the message seq. Those behind it no longer count against
// the window, or there might be no room for it to come; behind one that is kept
// only so many. The lock is held.
func (d *dispatch) block(l *line, seq uint64, until at, kept bool) (freed, bytes int) {
	l.blocked, l.since, l.until, l.kept = seq, d.clock(), until, kept
	waiting := l.queue.all()
	for i := range waiting {
		if w := &waiting[i]; !w.released && (!kept || !d.full(w.size, true)) {
			d.letWait(w)
			freed++
			bytes += w.size
		}
	}
	return freed, bytes
}
