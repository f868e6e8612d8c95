package relay

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/getsentry/sentry-go"

	"github.com/jetpull/jetpull/internal/mask"
)

// sentryFlush bounds the time in which a stop sends reports.
const sentryFlush = 2 * time.Second

// reporter writes errors to the log, and sends them to Sentry if there is a DSN.
type reporter struct {
	log *slog.Logger
	hub *sentry.Hub // nil without a DSN
}

func newReporter(log *slog.Logger, dsn string) (*reporter, error) {
	r := &reporter{log: log}
	if dsn == "" {
		return r, nil
	}
	client, err := sentry.NewClient(sentry.ClientOptions{Dsn: dsn})
	if err != nil {
		return nil, fmt.Errorf("[sentry] dsn: %w", mask.Error(err, dsn))
	}
	r.hub = sentry.NewHub(client, sentry.NewScope())
	return r, nil
}

// Report implements work.Reporter.
func (r *reporter) Report(ctx context.Context, err error, about ...any) {
	r.log.ErrorContext(ctx, "error", append([]any{"error", err}, about...)...)
	if r.hub == nil {
		return
	}
	hub := r.hub.Clone() // with a scope of its own
	for i := 0; i+1 < len(about); i += 2 {
		hub.Scope().SetTag(fmt.Sprint(about[i]), fmt.Sprint(about[i+1]))
	}
	hub.CaptureException(err)
}

func (r *reporter) close() {
	if r.hub != nil {
		r.hub.Flush(sentryFlush)
	}
}
