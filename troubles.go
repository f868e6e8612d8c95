package jetpull

import "errors"

// maxTroubles bounds the lines that one disturbance can log.
const maxTroubles = 16

// troubles are the problems of one disturbance of pulling: it lasts until
// messages arrive, or until a pull is heard of.
type troubles struct {
	logged map[string]bool // by text; nil: pulling is not disturbed
	calms  int             // see confidence; at the last problem
}

// problem is told of each pull that ended badly.
func (st *stream) problem(err error) {
	text := err.Error()
	calms, _ := st.confidence()
	st.mu.Lock()
	t := &st.troubles
	over := t.logged != nil && calms != t.calms
	if over {
		t.logged = nil
	}
	t.calms = calms
	// Problems can take turns, such as a 503 and the word that the consumer is
	// gone, so that the last one alone would be news each time.
	news := !t.logged[text] && len(t.logged) < maxTroubles
	if t.logged == nil {
		t.logged = map[string]bool{}
	}
	if news {
		t.logged[text] = true
	}
	st.mu.Unlock()
	if over {
		st.logCalm()
	}
	if news {
		st.log.Warn("jetpull: pulling is disturbed", "error", err)
	}
	st.report(err)
	if errors.Is(err, ErrConsumerDeleted) && !st.set.streaming.awaitConsumer {
		st.end(err)
	}
}

// lookForCalm notes that pulling is well again though no message has come: a pull
// has been heard of since the last problem.
func (st *stream) lookForCalm() {
	calms, doubt := st.confidence()
	st.mu.Lock()
	over := st.troubles.logged != nil && (!doubt || calms != st.troubles.calms)
	if over {
		st.troubles.logged = nil
	}
	st.mu.Unlock()
	if over {
		st.logCalm()
	}
}

func (st *stream) logCalm() { st.log.Info("jetpull: pulling is no longer disturbed") }

// confidence is how often a pull was heard of after trouble, and whether one has
// to be now.
func (st *stream) confidence() (calms int, doubt bool) {
	st.e.mu.Lock()
	defer st.e.mu.Unlock()
	return st.claim.stand.calms, st.claim.stand.doubt > 0
}

// recovered notes that messages arrive again.
func (st *stream) recovered() {
	st.mu.Lock()
	disturbed := st.troubles.logged != nil
	st.troubles.logged = nil
	st.mu.Unlock()
	if disturbed {
		st.log.Info("jetpull: messages arrive again")
	}
}
