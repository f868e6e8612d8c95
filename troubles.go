package jetpull

import "errors"

// maxTroubles bounds the lines that one disturbance can log.
const maxTroubles = 16

// troubles are the problems of one disturbance of pulling: it lasts until
// messages arrive, or until a pull is heard of. The rules tell of problems,
// messages and calm in the order in which they came about.
type troubles struct {
	logged map[string]bool // by text; nil: pulling is not disturbed
}

// problem is told of each pull that ended badly.
func (st *stream) problem(err error) {
	st.upset.Store(max(1, int64(st.e.now())))
	text := err.Error()
	st.mu.Lock()
	t := &st.troubles
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
	if news {
		st.log.Warn("jetpull: pulling is disturbed", "error", err)
	}
	st.report(err)
	if errors.Is(err, ErrConsumerDeleted) && !st.set.streaming.awaitConsumer {
		st.end(err)
	}
}

// calm is told that a pull has been heard of since the last problem, though no
// message may have come.
func (st *stream) calm() {
	if st.disturbed() {
		st.log.Info("jetpull: pulling is no longer disturbed")
	}
}

// recovered notes that messages arrive again.
func (st *stream) recovered() {
	if st.disturbed() {
		st.log.Info("jetpull: messages arrive again")
	}
}

// disturbed reports whether pulling was disturbed, and takes that to be over.
func (st *stream) disturbed() bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	was := st.troubles.logged != nil
	st.troubles.logged = nil
	return was
}
