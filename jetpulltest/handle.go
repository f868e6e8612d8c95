package jetpulltest

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/internal/worker"
)

// Handle runs h with m and settles m by what h returns, as Consume does: nil acknowledges it, [jetpull.Terminate] ends it,
// [jetpull.Retry] hands it back with its delay, and another error, or a panic, without one. A message that h has settled
// itself is left alone. m must be of [NewMsg].
//
// Options of Consume have no part in it: an error hands m back whatever its number of deliveries, and a handler for
// [jetpull.ManualAck] is called without Handle, which would acknowledge m.
func Handle(ctx context.Context, h jetpull.Handler, m *jetpull.Msg) Outcome {
	err := run(ctx, h, m)
	if OutcomeOf(m).Verb == Unsettled {
		settle(m, err)
	}
	o := OutcomeOf(m)
	o.Err = err
	return o
}

// settle settles a message that cannot fail to be settled: nothing is sent.
func settle(m *jetpull.Msg, err error) {
	term, ends := errors.AsType[*worker.TerminateError](err)
	retry, again := errors.AsType[*worker.RetryError](err)
	switch {
	case err == nil:
		_ = m.Ack()
	case ends:
		_ = m.TermWithReason(term.Reason)
	case errors.Is(err, worker.ErrFinal):
		_ = m.TermWithReason(err.Error())
	case again:
		_ = m.NakWithDelay(retry.After)
	default:
		_ = m.Nak()
	}
}

// run runs h and makes an error of its panic.
func run(ctx context.Context, h jetpull.Handler, m *jetpull.Msg) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("jetpulltest: the handler panicked: %v\n%s", v, debug.Stack())
		}
	}()
	return h(ctx, m)
}
