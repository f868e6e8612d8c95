package sim

import (
	"slices"
	"time"
)

// checkOrder: one handler at a time and in stream order, of each key with OrderedBy and of all messages with a concurrency of one; and what failed
// holds back what follows for as long as it is not due again.
func (a *audit) checkOrder() {
	lines := map[*run]map[string][]*handing{}
	for _, h := range a.handings {
		if h.run == nil || !h.run.ordered && !h.run.serial {
			continue
		}
		if lines[h.run] == nil {
			lines[h.run] = map[string][]*handing{}
		}
		key := ""
		if h.run.ordered {
			key = h.key
		}
		lines[h.run][key] = append(lines[h.run][key], h)
	}
	for _, r := range a.runs {
		for _, line := range lines[r] {
			a.checkTurns(line)
			if !a.inherits(r) {
				a.checkSequence(line)
			}
			if r.ordered {
				a.checkHeld(line)
			}
		}
	}
}

// checkTurns: no two handlers of a line overlap.
func (a *audit) checkTurns(line []*handing) {
	for i := 1; i < len(line); i++ {
		before, h := line[i-1], line[i]
		if !before.done || before.over > h.at {
			a.wrongWith(h.seq, "its handler began at %v while that of #%d before it in line ran until %v", h.at, before.seq, before.over)
		}
	}
}

// inherits reports whether a stream may have got what another one of its process
// had read ahead and left, as calls do where nothing can be handed back.
func (a *audit) inherits(r *run) bool {
	return a.plan.ackNone() && slices.ContainsFunc(a.runs, func(o *run) bool {
		return o != r && o.life == r.life && o.end >= r.from && o.from <= r.end
	})
}

// checkSequence: messages that are delivered for the first time come in stream order. A server that forgot deliveries begins again before where it
// was, and counts from one again what it had delivered, to another stream too.
func (a *audit) checkSequence(line []*handing) {
	seen := map[uint64]bool{}
	last := &handing{}
	for _, h := range line {
		if h.count > 1 || seen[h.seq] {
			seen[h.seq] = true
			continue
		}
		seen[h.seq] = true
		if h.seq < last.seq && !a.crashed(a.sentAt(last), h.at) {
			a.wrongWith(h.seq, "its first handler began after that of #%d", last.seq)
		}
		last = h
	}
}

// sentAt is when the server may have sent h at the earliest. It may have waited in
// the client for long, and a recreated consumer sends others of its kind.
func (a *audit) sentAt(h *handing) time.Duration {
	at := h.at
	for _, d := range a.courses[h.seq].deliveries {
		if d.life == h.life {
			at = min(at, d.at)
		}
	}
	return at
}

// crashed reports whether the server forgot deliveries between two times, or so shortly before that messages of both sides may have met.
func (a *audit) crashed(from, to time.Duration) bool {
	if gone, ok := a.plan.restart(); ok && gone.at <= to && gone.at+gone.length >= from-a.plan.trip() {
		return true // the new consumer begins from the first message
	}
	return slices.ContainsFunc(a.crashes, func(at time.Duration) bool { return at >= from-a.plan.trip() && at <= to })
}
