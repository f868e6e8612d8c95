package pull

import "strconv"

// Inbox is one subscription. A pooled inbox serves pull after pull by a wildcard and the last token of the reply subject; a single one
// serves one pull and is dropped.
type Inbox struct {
	// Fixed when its first pull is sent.
	Subject string // what is subscribed to
	Prefix  string // of the reply subjects; the subject itself for a single inbox

	Ref any // the driver's: the goroutine that carries out effects sets it

	single bool
	share  *share // of the pull it served last
	pull   *pull  // open on it

	// The reply subject of the last pull, and when it was first used. settled says that no status of that pull can come.
	reply     string
	repliedAt At
	settled   bool

	// Since it was given up: see leaving.
	number   uint64 // in the order in which inboxes are given up; 0: it is not
	reserved int    // messages that may still arrive
	leftAt   At
	since    At // when it was given up, or got its last message that counts
	drains   bool

	memory pull // of the pull that is open on it
}

// newInbox returns a pooled inbox.
func newInbox(base string, seq uint64) *Inbox {
	prefix := base + "." + strconv.FormatUint(seq, 36) + "."
	return &Inbox{Subject: prefix + "*", Prefix: prefix}
}

// serve begins a pull of a kind. The server caches what it knows of a reply subject, so no-wait pulls that follow each other have a
// common one for replyLife, if the last is settled. Otherwise a late status could be taken for a later pull's. seq is the number of a new
// reply subject.
func (ib *Inbox) serve(now At, s *share, k kind, seq uint64) *pull {
	if k != noWait || !ib.settled || now > ib.repliedAt+replyLife {
		var buffer [64]byte
		ib.reply, ib.repliedAt = string(strconv.AppendUint(append(buffer[:0], ib.Prefix...), seq, 36)), now
	}
	ib.memory = pull{share: s, inbox: ib, kind: k, reply: ib.reply, token: ib.reply[len(ib.Prefix):], req: s.terms.request()}
	if ib.single {
		ib.Subject, ib.Prefix = ib.reply, ib.reply
	}
	ib.share, ib.pull = s, &ib.memory
	return ib.pull
}

// close ends the pull that is open.
func (ib *Inbox) close() {
	p := ib.pull
	ib.settled = p.kind == noWait && p.got > 0 && p.got == p.req.Batch && !p.ended && p.req.MaxBytes == 0
	ib.pull = nil
}

// pullOf returns the open pull whose reply subject ends in token, or nil.
func (ib *Inbox) pullOf(token string) *pull {
	if p := ib.pull; p != nil && p.token == token && !p.ended {
		return p
	}
	return nil
}
