package console

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/jetpull/jetpull/console/internal/alert"
	"github.com/jetpull/jetpull/console/internal/page"
	"github.com/jetpull/jetpull/internal/service/httpserve"
	"github.com/jetpull/jetpull/internal/service/webhook"
	"github.com/jetpull/jetpull/internal/service/webhook/events"
)

// Alerts are where alerts go.
type Alerts struct {
	url, pages string
	signer     *webhook.Signer
	every      time.Duration
}

// NewAlerts has alerts sent to a URL, as POSTs that are signed with a secret as Standard Webhooks describes. The secret is base64 of 24 to 64 bytes,
// with or without the prefix whsec_, or several of them with spaces between. Public is the URL by which browsers reach the console, for links; empty:
// alerts have none. Without a URL and a secret, the result is nil. No error has the secret.
func NewAlerts(url, secret, public string) (*Alerts, error) {
	if url == "" && secret == "" {
		return nil, nil
	}
	if err := webhook.CheckURL(url); err != nil {
		return nil, err
	}
	signer, err := webhook.NewSigner(secret)
	if err != nil {
		return nil, err
	}
	if _, err := httpserve.ParsePublicURL(public); err != nil {
		return nil, fmt.Errorf("public URL: %w", err)
	}
	return &Alerts{url, strings.TrimRight(public, "/"), signer, alertEvery}, nil
}

const (
	// alertEvery is the time between two looks. Sources are asked that often at least, if they answer.
	alertEvery   = 10 * time.Second
	alertTimeout = 10 * time.Second
	// alertTries is how often an alert is sent at most. With the pauses between them, that takes 6 to 7 minutes.
	alertTries = 6
)

// run sends alerts of the console at a path below the public URL, until ctx ends.
func (a *Alerts) run(ctx context.Context, summaries []page.Summary, environment, path string, log *slog.Logger) {
	if a == nil {
		return
	}
	sender := events.Start(events.Config{
		URL: a.url, UserAgent: "jetpull-console", Timeout: alertTimeout, Tries: alertTries, Signer: a.signer, Log: log,
	})
	defer sender.Close()
	samples := make([]func() alert.Sample, len(summaries))
	now, stop := context.WithCancel(ctx)
	stop() // an alert does not wait for a source
	for i, one := range summaries {
		samples[i] = func() alert.Sample { return one.Overview(now, page.Request{Now: time.Now()}).Judged }
	}
	pages := a.pages
	if pages != "" {
		pages += path
	}
	alert.Run(ctx, a.every, samples, environment, pages, sender.Send)
}
