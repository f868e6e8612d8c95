package transport

import "github.com/jetpull/jetpull/internal/pull"

// Sink receives the messages and problems of a standing demand, in order, from one goroutine at a time and without a
// lock. Deliver must not keep ms.
type Sink interface {
	Deliver(ms []pull.Message, done bool, err error)
	Problem(err error)
	Healthy()
}

// Standing is a standing demand.
type Standing struct {
	d      *Driver
	demand pull.Demand
}

// Standing returns a standing demand that is to be opened.
func (d *Driver) Standing(ask pull.Ask, sink Sink) *Standing {
	s := &Standing{d: d}
	s.demand.Ask, s.demand.Ref = ask, sink
	s.demand.Mode = pull.Standing
	return s
}

// Open posts the demand. The background reader reads for it, unless a caller does.
func (s *Standing) Open() {
	s.d.Do(func(e *pull.Engine, now pull.At) {
		e.Post(now, &s.demand)
		s.d.ensureReader()
	})
}

// Credit returns messages to the window; see pull.Engine.Credit.
func (s *Standing) Credit(c pull.Credit) {
	s.d.Do(func(e *pull.Engine, now pull.At) { e.Credit(now, &s.demand, c) })
}

// Return takes back a message that cannot be handed back to the server.
func (s *Standing) Return(m pull.Message, size int) {
	s.d.Do(func(e *pull.Engine, now pull.At) {
		s.d.reader.nudge = true // the caller that reads may get it
		e.Return(now, s.demand.Terms, m, size)
	})
}

// Leave ends the demand. Messages on their way to the sink still arrive.
func (s *Standing) Leave() {
	s.d.Do(func(e *pull.Engine, now pull.At) { e.Cancel(now, &s.demand, nil) })
}
