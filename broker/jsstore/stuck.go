package jsstore

import (
	"fmt"
	"strings"
	"time"

	"github.com/jetpull/jetpull/broker"
)

// ServerSaid takes a line of the embedded server's log. A write that the system had no room for is answered with nothing, and so are all
// that follow (nats-server 2.15.2): the log is where it says so.
func (s *Store) ServerSaid(text string) {
	if !noSpace(text) {
		return
	}
	for _, c := range s.committers() {
		if strings.Contains(text, "["+c.name+"]") || strings.Contains(text, "> "+c.name+"'") {
			c.full.Store(&refusal{time.Now(), fmt.Errorf("%w: stream %s: %s", broker.ErrStoreFull, c.name, text), true})
		}
	}
}

// stuck is why the server takes no writes to the stream until it is started again, or nil.
func (c *committer) stuck() error {
	if r := c.full.Load(); r != nil && r.stuck {
		return r.err
	}
	return nil
}

// Stuck tells whether the embedded server takes no writes any more, because there was no room for one: it has to be started again
// when there is.
func (s *Store) Stuck() bool {
	for _, c := range s.committers() {
		if c.stuck() != nil {
			return true
		}
	}
	return false
}

// Restarted is called when the server was started again.
func (s *Store) Restarted() {
	for _, c := range s.committers() {
		c.full.Store(nil)
	}
}

func (s *Store) committers() []*committer {
	return []*committer{s.registryWrites, s.messageWrites, s.jobWrites, s.attemptWrites}
}
