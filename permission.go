package jetpull

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// refusals tell a refusal of the server from those of before. The server says
// it on the connection and never answers what it refused, and nats.go goes on
// saying what was refused last, long after the permission was given.
type refusals struct {
	mu  sync.Mutex
	old error // the last one when something was sent last, and so not of that
}

func newRefusals(nc *nats.Conn) *refusals {
	r := &refusals{}
	r.mark(nc)
	return r
}

// mark is called before something is sent.
func (r *refusals) mark(nc *nats.Conn) {
	last := violation(nc)
	r.mu.Lock()
	r.old = last
	r.mu.Unlock()
}

// violation is the connection's last error where that is a refusal.
func violation(nc *nats.Conn) error {
	if err := nc.LastError(); errors.Is(err, nats.ErrPermissionViolation) {
		return err
	}
	return nil
}

// news is the refusal of what was sent last to subject, or nil. nats.go makes an
// error for each refusal, so another error is another refusal.
func (r *refusals) news(nc *nats.Conn, subject string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	last := violation(nc)
	if last == nil || last == r.old { //nolint:errorlint // which error it is counts, not of what kind
		return nil
	}
	return permissionError(nc, subject)
}

// permissionError is the server's refusal of a publish or subscription to
// subject, if that was the connection's last error.
func permissionError(nc *nats.Conn, subject string) error {
	err := violation(nc)
	if err == nil || !strings.Contains(err.Error(), `"`+subject+`"`) {
		return nil
	}
	return fmt.Errorf("jetpull: the user may not use subject %s; allow it in the server's permissions: %w", subject, err)
}

// permissionLook is how often a request that waits for its answer looks whether
// the server has refused it.
const permissionLook = 20 * time.Millisecond

// request runs f, which asks the server on subject, and ends its context as
// soon as the server refuses that: the wait for an answer would be in vain. Then
// the error is the refusal.
func request(ctx context.Context, nc *nats.Conn, subject string, f func(context.Context) error) error {
	r := newRefusals(nc)
	ctx, cancel := context.WithCancel(ctx)
	var watch sync.WaitGroup
	watch.Go(func() {
		tick := time.NewTicker(permissionLook)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				if r.news(nc, subject) != nil {
					cancel()
					return
				}
			}
		}
	})
	err := f(ctx)
	cancel()
	watch.Wait()
	if err != nil {
		if refused := r.news(nc, subject); refused != nil {
			return refused
		}
	}
	return err
}
