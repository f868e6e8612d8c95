package jetpull

import (
	"fmt"
	"slices"

	"github.com/nats-io/nats.go"
)

// lose gives b up if the connection is closed for good: neither can its dead letter
// be stored, nor the message go back.
func (st *stream) lose(b *burial) bool {
	if !st.e.nc.IsClosed() {
		return false
	}
	seq := b.m.Sequence()
	st.report(fmt.Errorf("jetpull: stream sequence %d was delivered for the last time and has no dead letter: %w", seq, closedError(nats.ErrConnectionClosed)))
	st.aside.mu.Lock()
	st.aside.lost = append(st.aside.lost, seq)
	st.aside.mu.Unlock()
	return true
}

// sequencesTold bounds the sequences that an error names.
const sequencesTold = 20

// unburied says which messages were given up; nil: none.
func (st *stream) unburied() error {
	st.aside.mu.Lock()
	defer st.aside.mu.Unlock()
	n, more := len(st.aside.lost), ""
	if n == 0 {
		return nil
	}
	slices.Sort(st.aside.lost)
	if n > sequencesTold {
		more = " and others"
	}
	return fmt.Errorf("%w: %d messages at their last delivery have no dead letter stored, and consumer %q does not deliver them again: take them from stream %q, sequences %v%s",
		closedError(nats.ErrConnectionClosed), n, st.sub.consumer, st.sub.stream, st.aside.lost[:min(n, sequencesTold)], more)
}
