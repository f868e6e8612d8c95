package jetpull

import "time"

// at is a point in time: the duration since the engine was made. The rules
// never read a clock; they are told the time with each event.
type at = time.Duration

// claimMode says when a claim is content.
type claimMode uint8

const (
	claimOnce     claimMode = iota // with the first messages, up to what it wants
	claimFill                      // with all that it wants
	claimStanding                  // never: it holds a window open until it leaves
)

// claim is what one caller wants: up to want messages, at least one, until a
// deadline. The rules own its fields while it is posted; once it is done they
// belong to the caller.
type claim struct {
	lane     *lane
	mode     claimMode
	want     int // messages it still wants; unused by a standing claim
	deadline at  // 0: none
	// asked is set where the user chose the wait, so that the pull asks for
	// just that even if it is over the consumer's limit.
	asked    bool
	noWait   bool
	maxBytes int  // 0: no limit
	carrier  *Msg // its acknowledgement carries the first pull (+NXT)

	long bool  // phase two: the no-wait pull said empty
	pull *pull // the pull that covers it; nil: it needs one
	// refused is set while it waits to hear why its pull was over a limit.
	refused *refusal
	tries   int   // silent or failed no-wait pulls so far
	cause   error // what stood in the way last

	got   []*Msg // handed to it, not yet taken by the caller
	n     int    // messages handed to it so far
	bytes int    // and their size
	done  bool
	err   error

	stand standing

	one   [1]*Msg // memory of got for a claim of one message
	leads bool    // its caller reads for everybody, or is about to
	// ready tells the caller, if it is not the one that reads, that the claim
	// is done, that there are messages, or that it is to read from now on.
	ready chan struct{}
}

// standing is the state of a claim that holds a window open.
type standing struct {
	window    int // messages that may be held or on their way
	workers   int // messages of the window that are being handled, not waiting
	held      int // handed over and not yet settled by the caller
	heldBytes int
	byteBound
	// idle is since when a pull expired with no more than half of its messages; 0:
	// none did. Those that are open are demand enough until messages use them up,
	// and one pull takes the place of all when they are over.
	idle     at
	lastPull at
	// doubt counts the pulls in a row that ended in trouble; the last of them
	// silently, or not.
	doubt   int
	silent  bool
	beat    time.Duration // heartbeat to ask for
	lively  at            // when messages or trouble came last
	woken   bool          // the engine is about to hand over what has come
	onError func(error)   // told of each problem, off the delivery path
	onCalm  func()        // told when a pull is heard of after problems
	// sink takes the messages; done tells that there will be no more.
	sink func(ms []*Msg, done bool, err error)
}

// wants reports whether a message can be handed to c.
func (c *claim) wants() bool {
	return c.mode == claimStanding || c.want > 0
}

// hand gives m to the claim.
func (c *claim) hand(m *Msg, size int) {
	c.got = append(c.got, m)
	c.n++
	c.bytes += size
	if c.mode == claimStanding {
		c.stand.held++
		c.stand.heldBytes += size
		return
	}
	c.want--
	if c.pull != nil {
		c.pull.need--
	}
}

// lane is what claims of the same terms share: pulls, and so messages.
type lane struct {
	terms     groupTerms
	heartbeat time.Duration // asked for; 0: by the length of the wait
	// own is set for a claim with MaxBytes, which shares with no other.
	own bool

	claims  []*claim // in the order they came, standing ones too
	pulls   []*pull  // open
	stash   []*Msg   // ack policy none: late messages, for the next claim
	retryAt at       // no pull before this
	tries   int      // failures in a row
	// downgraded is set once the server ended a one-shot at once with nothing:
	// it takes no_wait before expires, as servers before 2.11 do.
	downgraded bool
	// crowded is set where the server refused a one-shot because other clients
	// claim all that is pending, until a message comes or no claim is left.
	crowded bool
}

// plain reports whether a long pull cannot be a one-shot now.
func (l *lane) plain() bool { return l.downgraded || l.crowded }

// next is the claim that the next message goes to: the first that waits, then
// the standing claim that asked for it, then any other.
func (l *lane) next(owner *claim) *claim {
	var standing *claim
	for _, c := range l.claims {
		switch {
		case c.mode != claimStanding:
			if c.wants() {
				return c
			}
		case standing == nil || c == owner:
			standing = c
		}
	}
	return standing
}

func (l *lane) remove(c *claim) {
	for i, o := range l.claims {
		if o == c {
			l.claims = append(l.claims[:i], l.claims[i+1:]...)
			return
		}
	}
}

func (l *lane) removePull(p *pull) {
	for i, o := range l.pulls {
		if o == p {
			l.pulls = append(l.pulls[:i], l.pulls[i+1:]...)
			return
		}
	}
}

// batchEnds reports whether something soon says that no more comes for c now
// that it has a message. A no-wait pull and a one-shot that has brought some end
// by themselves. A long pull that has brought nothing does not, where the message
// came by another pull; nor does a plain one, which waits for its whole batch.
func (c *claim) batchEnds() bool {
	return !c.long || c.pull != nil && c.pull.kind == pullOnce && c.pull.got > 0
}

// attach lets p cover c.
func (c *claim) attach(p *pull) {
	c.pull = p
	p.claims++
	p.need += c.want
}

// detach takes c's demand away from the pull that covers it.
func (c *claim) detach() {
	if c.pull != nil {
		c.pull.claims--
		c.pull.need -= c.want
		c.pull = nil
	}
}

// unstash hands a claim what came late for others. A call with MaxBytes has a
// lane of its own, but what comes late is kept in the shared one.
func (r *rules) unstash(c *claim) {
	if !r.limits.ackNone {
		return
	}
	l := c.lane
	if l.own {
		l = r.laneOf(l.terms, l.heartbeat, false)
	}
	for len(l.stash) > 0 && c.wants() && !c.done {
		m := l.stash[0]
		size := m.size()
		if l != c.lane && c.bytes+size > c.maxBytes {
			return
		}
		l.stash = l.stash[1:]
		r.deliver(c, m, size)
	}
}

// finish ends a claim. A claim that has messages has no error.
func (r *rules) finish(c *claim, err error) {
	if c.done {
		return
	}
	if c.n > 0 && c.mode != claimStanding {
		err = nil
	}
	c.done, c.err = true, err
	c.detach()
	if c.lane != nil {
		c.lane.remove(c)
	}
	if !c.leads {
		r.do(action{kind: actWake, claim: c})
	}
}
