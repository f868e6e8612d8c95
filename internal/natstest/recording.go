package natstest

import "testing"

// Recording is what clients have sent through a proxy since its start.
type Recording struct {
	tb  testing.TB // nil for a proxy of ListenProxy
	log opLog
}

// Ops is the operations so far, of each connection in its order.
func (r *Recording) Ops() []Op { return r.log.all() }

// Reset forgets the operations so far.
func (r *Recording) Reset() { r.log.reset() }

// Wait waits until cond is true of the operations so far, and says whether it
// became so within half a minute. If it did not, the test of a NewProxy fails.
func (r *Recording) Wait(cond func([]Op) bool) bool {
	ok := r.log.wait(cond)
	if !ok && r.tb != nil {
		r.tb.Helper()
		r.tb.Fatalf("natstest: the recording waited %s in vain; it has:\n%s", waitTimeout, describe(r.Ops()))
	}
	return ok
}
