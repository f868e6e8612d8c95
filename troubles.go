package jetpull

import (
	"errors"
	"time"
)

// maxTroubles bounds the lines that one disturbance can log.
const maxTroubles = 16

// troubles are the problems of one disturbance of pulling: it lasts until
// messages arrive, or until there has been no problem for a while.
type troubles struct {
	logged map[string]bool // by text; nil: pulling is not disturbed
	last   at              // when there last was one
}

// problem is told of each pull that ended badly.
func (st *stream) problem(err error) {
	now, text := st.e.now(), err.Error()
	st.lookForCalm(now)
	st.mu.Lock()
	t := &st.troubles
	// Problems can take turns, such as a 503 and the word that the consumer is
	// gone, so that the last one alone would be news each time.
	news := !t.logged[text] && len(t.logged) < maxTroubles
	if t.logged == nil {
		t.logged = map[string]bool{}
	}
	t.last = now
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

// calm is after how long without a problem pulling is well again though no
// message has come. A pull that gets no answer is told after two heartbeats.
func (st *stream) calm() time.Duration {
	beat := st.set.heartbeat
	if beat == 0 {
		beat = defaultHeartbeat
	}
	return 2*beat + 5*time.Second
}

// lookForCalm notes that there has been no problem for a while.
func (st *stream) lookForCalm(now at) {
	st.mu.Lock()
	over := st.troubles.logged != nil && now-st.troubles.last > st.calm() && st.e.nc.IsConnected()
	if over {
		st.troubles.logged = nil
	}
	st.mu.Unlock()
	if over {
		st.log.Info("jetpull: pulling is no longer disturbed")
	}
}

// recovered notes that messages arrive again.
func (st *stream) recovered() {
	st.sub.refusals.answered(st.e.nc)
	st.mu.Lock()
	disturbed := st.troubles.logged != nil
	st.troubles.logged = nil
	st.mu.Unlock()
	if disturbed {
		st.log.Info("jetpull: messages arrive again")
	}
}
