package jetpulltest

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/internal/worker"
)

// Handle calls h with m and settles m by the result, as Consume does. After nil it acknowledges m. [jetpull.Terminate]
// terminates m, and [jetpull.Retry] NAKs it with a delay. After any other error, or a panic, m is NAKed without a delay. If h
// has settled m itself, Handle does not. m must be a message of [NewMsg].
//
// Handle ignores the options of Consume: after an error it NAKs m, whatever its number of deliveries. Call a handler for
// [jetpull.ManualAck] directly, because Handle would acknowledge m.
func Handle(ctx context.Context, h jetpull.Handler, m *jetpull.Msg) Outcome {
	err := run(ctx, h, m)
	if OutcomeOf(m).Verb == Unsettled {
		settle(m, err)
	}
	o := OutcomeOf(m)
	o.Err = err
	return o
}

// settle settles m by err. It cannot fail, because nothing is sent.
func settle(m *jetpull.Msg, err error) {
	term, ends := errors.AsType[*jetpull.TerminateError](err)
	retry, again := errors.AsType[*jetpull.RetryError](err)
	switch {
	case err == nil:
		_ = m.Ack()
	case ends:
		_ = m.TermWithReason(term.Reason)
	case errors.Is(err, jetpull.ErrPayload):
		_ = m.TermWithReason(worker.GivenUp(int(m.Delivered()), err))
	case again:
		_ = m.NakWithDelay(retry.After)
	default:
		_ = m.Nak()
	}
}

// run calls h and returns a panic as an error.
func run(ctx context.Context, h jetpull.Handler, m *jetpull.Msg) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("jetpulltest: the handler panicked: %v\n%s", v, debug.Stack())
		}
	}()
	return worker.Readable(h(ctx, m))
}
