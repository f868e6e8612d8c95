package pull

// pins are the pin ids that the client holds, by priority group. A message with a pin id gains it, whatever was
// held before. A 423 drops an id only if the pull that it answers carried it and it is still the current one:
// the late answer to an old pull does not drop a new pin. An id that was lost is not gained again: the server
// generates a new one for each pin, and a message with the old one was on the wire, or waited for a quorum.
type pins map[string]struct{ id, lost string }

// Pin is a pin id of a priority group.
type Pin struct{ Group, ID string }

// set makes id the one held in group.
func (p pins) set(group, id string) {
	h := p[group]
	if h.id != "" {
		h.lost = h.id
	}
	h.id = id
	p[group] = h
}

// pinGained takes the pin id of a message that the pull by brought, and reports whether it is new. Pulls without it stand by
// from now on, so they end, and new pulls with it take their place.
func (e *Engine) pinGained(now At, group, id string, by *pull) bool {
	before := e.pins[group].id
	if before == id || e.pins[group].lost == id {
		return false
	}
	e.PinLost(group, before)
	e.pins.set(group, id)
	e.do(Effect{Kind: PinGained, Pin: &Pin{Group: group, ID: id}})
	for _, s := range e.shares {
		for i := len(s.pulls) - 1; i >= 0 && s.terms.Group == group; i-- {
			if p := s.pulls[i]; p != by && !p.ended && p.kind != noWait && p.req.ID != id {
				e.end(now, p, ending{unsure: true})
			}
		}
	}
	return true
}

// PinLost drops id if it is the one held in group.
func (e *Engine) PinLost(group, id string) {
	if id == "" || e.pins[group].id != id {
		return
	}
	e.pins.set(group, "")
	e.do(Effect{Kind: PinLost, Pin: &Pin{Group: group, ID: id}})
}

// PinID returns the pin id that the client holds in group, or "".
func (e *Engine) PinID(group string) string { return e.pins[group].id }

// PinnedPolicy reports whether the consumer has the policy pinned_client.
func (e *Engine) PinnedPolicy() bool { return e.limits.Pinned }

// Stands reports whether a standing demand of group is left.
func (e *Engine) Stands(group string) bool {
	for _, s := range e.shares {
		for _, d := range s.demands {
			if d.Mode == Standing && s.terms.Group == group {
				return true
			}
		}
	}
	return false
}
