package jetpull

import "errors"

// maxTroubles bounds the lines that one disturbance can log.
const maxTroubles = 16

// troubles are the problems of one disturbance of pulling: it lasts until
// messages arrive, or until a pull is heard of. The rules tell of problems,
// messages and calm in the order in which they came about.
type troubles struct {
	logged map[string]bool // by text; nil: pulling is not disturbed
	// unsaid is a 503 that came first, at since: the next problem tells whether it
	// means that the consumer is gone.
	unsaid error
	since  at
}

// sayAfter is how long the word that the consumer is gone may take after a 503.
const sayAfter = firstBackoff / 2

// key is what a problem is told apart by. A deletion is told in several ways.
func (t *troubles) key(err error) string {
	if errors.Is(err, ErrConsumerDeleted) {
		return ErrConsumerDeleted.Error()
	}
	return err.Error()
}

// news takes a problem in and returns those that are to be logged.
func (t *troubles) news(now at, err error) (lines []error) {
	first := t.logged == nil
	if first {
		t.logged = map[string]bool{}
	}
	unsaid := t.unsaid
	switch {
	case errors.Is(err, ErrConsumerDeleted):
		unsaid = nil
	case errors.Is(err, ErrNoResponders) && (first || unsaid != nil && now < t.since+sayAfter):
		if first {
			t.unsaid, t.since = err, now
		}
		return nil
	case errors.Is(err, ErrNoResponders) && t.logged[ErrConsumerDeleted.Error()]:
		return nil // of course
	}
	t.unsaid = nil
	for _, e := range []error{unsaid, err} {
		// Problems can take turns, so that the last one alone would be news each
		// time.
		if e == nil || t.logged[t.key(e)] || len(t.logged) >= maxTroubles {
			continue
		}
		t.logged[t.key(e)] = true
		lines = append(lines, e)
	}
	return lines
}

// problem is told of each pull that ended badly.
func (st *stream) problem(err error) {
	now := st.e.now()
	st.upset.Store(max(1, int64(now)))
	st.mu.Lock()
	news := st.troubles.news(now, err)
	st.mu.Unlock()
	for _, line := range news {
		st.log.Warn("jetpull: pulling is disturbed", "error", line)
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

// disturbed reports whether it was logged that pulling is disturbed, and takes that
// to be over.
func (st *stream) disturbed() bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	was := len(st.troubles.logged) > 0
	st.troubles = troubles{}
	return was
}
