package jetpull

// maxBack bounds the messages that wait behind failed ones.
const maxBack = 2048

// full reports whether no more messages may wait out of the window, or none of that
// size where the one that they wait for is aside: that can be so for ever.
func (d *dispatch) full(size int, aside bool) bool {
	return d.back >= maxBack || aside && d.back > 0 && d.mostBytes > 0 && d.backBytes+size > d.mostBytes
}

// letWait lets h, which waits, no longer count against the window.
func (d *dispatch) letWait(h *held) {
	h.released = true
	d.back++
	d.backBytes += h.size
}

// waited notes that h, taken from its line, waits no longer.
func (d *dispatch) waited(h *held) {
	if h.released {
		d.back--
		d.backBytes -= h.size
	}
}

// takesPlace reports whether there is room in l for h if last leaves.
func (d *dispatch) takesPlace(l *line, h, last *held) bool {
	return !l.kept || d.mostBytes == 0 || d.backBytes-last.size+h.size <= d.mostBytes
}
