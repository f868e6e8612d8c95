package pull

// pins are the pin ids that the client holds, by priority group. A message with a pin id gains it, whatever was
// held before. A 423 drops an id only if the pull that it answers carried it and it is still the current one:
// the late answer to an old pull does not drop a new pin. An id that was lost is not gained again: the server
// generates a new one for each pin, and a message with the old one was on the wire, or waited for a quorum.
type pins map[string]struct{ id, lost string }

// Pin is a pin id of a priority group.
type Pin struct{ Group, ID string }

// isNew reports whether a message with id gains a pin.
func (p pins) isNew(group, id string) bool {
	held := p[group]
	return id != "" && id != held.id && id != held.lost
}

// set makes id the one held in group.
func (p pins) set(group, id string) {
	h := p[group]
	if h.id != "" {
		h.lost = h.id
	}
	h.id = id
	p[group] = h
}
