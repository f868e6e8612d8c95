package pull

// request makes p the pull that o orders for d, and in a share group for the calls like d, and returns its batch.
func (d *Demand) request(now At, p *pull, o *order, limits *Limits) (batch int) {
	switch p.kind {
	case windowed:
		d.stand.ask(now, p, d, o, limits)
		return o.batch
	case noWait:
		return min(o.batch, d.share.look(now, p, limits))
	}
	return min(o.batch, d.share.stay(now, p, d, limits))
}

// look makes p the no-wait pull of the calls that have not looked, and returns how many messages they want.
func (s *share) look(now At, p *pull, limits *Limits) (batch int) {
	p.req.NoWait, p.patience = true, quickSilence
	for _, d := range s.demands {
		if d.Mode == Standing || d.pull != nil || d.long || batch > 0 && limits.batch(batch+d.Want) < batch+d.Want {
			continue
		}
		if batch == 0 {
			p.req.MaxBytes = d.bytesLeft()
		}
		batch += d.Want
		p.patience = min(p.patience, (d.Deadline-now)/2)
		d.attach(p)
	}
	return batch
}

// stay makes p the long pull of first and the calls like it that found nothing, and returns how many messages they want. The pull of a
// NoWait call is brief: its no-wait pull was not answered, and at MaxAckPending the server answers when the pull expires.
func (s *share) stay(now At, p *pull, first *Demand, limits *Limits) (batch int) {
	p.req.NoWait, p.req.MaxBytes = p.kind == oneShot, first.bytesLeft()
	heartbeat, until := true, At(0)
	for _, d := range s.demands {
		want := d.Want
		if d.Mode == Some && s.claimed {
			want = 1
		}
		like := d.Mode == first.Mode && d.long && d.pull == nil && d.NoWait == first.NoWait
		if !like || batch > 0 && limits.batch(batch+want) < batch+want {
			continue
		}
		batch += want
		until, heartbeat = max(until, d.Deadline), heartbeat && !d.noHeartbeat
		d.attach(p)
	}
	p.req.Expires = expiresIn(until - now)
	if first.NoWait {
		p.req.Expires = min(p.req.Expires, briefExpires)
	}
	if !s.unshared || !first.Chosen { // a wait that the user chose is refused where it is over the limit
		p.req.Expires = limits.expires(p.req.Expires)
	}
	if heartbeat {
		p.req.Heartbeat = callHeartbeat(s.terms.Heartbeat, p.req.Expires)
	}
	return batch
}

// ask makes p the pull that o orders for a standing demand.
func (s *standing) ask(now At, p *pull, d *Demand, o *order, limits *Limits) {
	p.owner, p.refresh = d, o.refresh
	p.req.MaxBytes, p.req.Expires = o.bytes, limits.standing()
	if o.refresh {
		p.req.MaxBytes = refreshBytes
	} else {
		p.alone, s.oversize = s.oversize, false
	}
	switch beat := d.Terms.Heartbeat; {
	case s.probing:
		p.req.Expires = min(p.req.Expires, probeExpires)
	case beat > 0:
		p.req.Heartbeat = min(beat, p.req.Expires/2)
	default:
		p.req.Expires = inStep(now, p.req.Expires)
		p.req.Heartbeat = min(StandingHeartbeat, p.req.Expires/2)
	}
	s.lastPull = now
}
