package store

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
)

const (
	// readyTimeout bounds the write that shows whether the store takes any, and readyEvery is how often there is one, at most.
	readyTimeout = time.Second
	readyEvery   = 500 * time.Millisecond
)

// readiness is what the last look at the store has found.
type readiness struct {
	looking chan struct{} // has room for one: who has it full may use the others
	at      time.Time
	err     error
}

// Ready returns why the store takes nothing, or nil. It writes: a server without a quorum, and one whose disk is full, answer
// everything else.
func (s *Store) Ready(ctx context.Context) error {
	if !s.nc.IsConnected() {
		return fmt.Errorf("%w: not connected to NATS (%s)", ErrUnavailable, s.nc.Status())
	}
	r := &s.readiness
	select {
	case r.looking <- struct{}{}:
		defer func() { <-r.looking }()
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", ErrUnavailable, context.Cause(ctx))
	}
	if time.Since(r.at) < readyEvery {
		return r.err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readyTimeout)
	defer cancel()
	_, r.err = s.publish(ctx, &nats.Msg{Subject: "$KV." + s.state.Bucket() + ".ready"})
	r.at = time.Now()
	return r.err
}
