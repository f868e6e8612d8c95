package pull

// Post accepts a demand.
func (e *Engine) Post(now At, d *Demand) {
	e.at(now)
	if d.Mode == Standing {
		d.stand = &standing{window: d.Window, workers: d.Workers, bytes: d.Bytes}
	}
	if e.dead != nil {
		e.finish(d, e.dead)
		return
	}
	s := e.shareOf(d.Terms, d.Mode != Standing && (d.MaxBytes > 0 || e.limits.exceeded(now, &d.Ask)))
	d.share = s
	s.demands = append(s.demands, d)
	e.unstash(d) // before anything is pulled for it
	if !d.Done && d.n > 0 && d.Mode == Some {
		e.finish(d, nil)
	}
	e.cover(now, s)
}

// Cancel ends a demand whose caller leaves with err.
func (e *Engine) Cancel(now At, d *Demand, err error) {
	if d.Done {
		return
	}
	e.at(now)
	e.finish(d, err)
	e.cover(now, d.share)
}

// Credit returns messages of a standing demand to its window.
func (e *Engine) Credit(now At, d *Demand, c Credit) {
	e.at(now)
	d.stand.credit(c)
	if !d.Done {
		e.cover(now, d.share)
	}
}

// Return takes back a message that a standing demand with these terms got and does not need, if it cannot
// be handed back to the server.
func (e *Engine) Return(now At, terms Terms, m Message, size int) {
	e.at(now)
	s := e.shareOf(terms, false)
	if d := s.next(nil); d != nil {
		e.deliver(d, m, size)
	} else {
		e.late(s, m, size)
	}
	e.cover(now, s)
}
