package client

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
)

// The server never answers a request that it refuses: it reports the refusal on the connection. Without that report, a request would fail as if
// there were no message, no stream or no server.

// watchRefusals notes the first refusal of the server, and leaves the rest to the handler that is set.
func (l *Link) watchRefusals(o *nats.Options) error {
	next := o.AsyncErrorCB
	o.AsyncErrorCB = func(nc *nats.Conn, sub *nats.Subscription, err error) {
		if errors.Is(err, nats.ErrPermissionViolation) {
			l.deny(fmt.Errorf("the user may not do this; allow it in the server's permissions: %w", err))
		}
		next(nc, sub, err)
	}
	return nil
}

// errNoJetStream says that there can be no stream, whatever the command asked for.
var errNoJetStream = errors.New("JetStream is not enabled for this account; enable it, or connect as a user of another account")

// Explain returns what is behind an error that says only that no answer came, or no message: a refusal, or an account without JetStream.
func (l *Link) Explain(ctx context.Context, err error) error {
	late := errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) || errors.Is(err, nats.ErrTimeout) ||
		errors.Is(err, jetpull.ErrTimeout) || errors.Is(err, jetpull.ErrNoMessages) || errors.Is(err, cli.ErrShort)
	nobody := errors.Is(err, nats.ErrNoResponders) || errors.Is(err, jetstream.ErrNoStreamResponse) || errors.Is(err, jetpull.ErrNoResponders) ||
		errors.Is(err, jetstream.ErrJetStreamNotEnabled) || errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount)
	switch {
	case ctx.Err() != nil:
		return err
	case late && l.Allowed.Err() != nil:
		return context.Cause(l.Allowed)
	case nobody:
		ctx, cancel := context.WithTimeout(ctx, l.Timeout)
		defer cancel()
		_, asked := l.JS.AccountInfo(ctx)
		if errors.Is(asked, jetstream.ErrJetStreamNotEnabled) || errors.Is(asked, jetstream.ErrJetStreamNotEnabledForAccount) {
			return errNoJetStream
		}
	}
	return err
}
