package streams

import (
	"fmt"
	"strings"
	"time"

	"github.com/jetpull/jetpull/broker/internal/domain"
)

// Writers are those of all streams whose writes are confirmed.
type Writers []*Writer

// Close has writes that are not durable yet fail.
func (w Writers) Close() {
	for _, c := range w {
		c.close()
	}
}

// Failure is why nothing that is written can be said to be on disk any more, or nil.
func (w Writers) Failure() error {
	for _, c := range w {
		if err := c.Failure(); err != nil {
			return err
		}
	}
	return nil
}

// NoRoom is why a last write was refused, if that is not long ago.
func (w Writers) NoRoom() error {
	for _, c := range w {
		if err := c.NoRoom(); err != nil {
			return err
		}
	}
	return nil
}

// ServerSaid takes a line of the embedded server's log. A write that the system had no room for is answered with nothing, and so are all
// that follow (nats-server 2.15.2): the log is where it says so.
func (w Writers) ServerSaid(text string) {
	if !noSpace(text) {
		return
	}
	for _, c := range w {
		if strings.Contains(text, "["+c.name+"]") || strings.Contains(text, "> "+c.name+"'") {
			c.full.Store(&refusal{time.Now(), fmt.Errorf("%w: stream %s: %s", domain.ErrStoreFull, c.name, text), true})
		}
	}
}

// stuck is why the server takes no writes to the stream until it is started again, or nil.
func (c *Writer) stuck() error {
	if r := c.full.Load(); r != nil && r.stuck {
		return r.err
	}
	return nil
}

// Stuck tells whether the embedded server takes no writes any more, because there was no room for one: it has to be started again
// when there is.
func (w Writers) Stuck() bool {
	for _, c := range w {
		if c.stuck() != nil {
			return true
		}
	}
	return false
}

// Restarted is called when the server was started again.
func (w Writers) Restarted() {
	for _, c := range w {
		c.full.Store(nil)
	}
}
