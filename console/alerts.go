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

// Alerts configures where alerts are sent.
type Alerts struct {
	url, pages string
	signer     *webhook.Signer
	every      time.Duration
}

// NewAlerts returns Alerts that are sent to url as POSTs, which are signed with secret as Standard Webhooks specifies. The secret is the base64 of 24
// to 64 bytes, with or without the prefix whsec_, or several of these, separated by spaces. public is the URL at which browsers reach the console,
// for links; without it, alerts have no links. NewAlerts returns nil if url and secret are empty. Its errors do not show the secret.
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
	// alertEvery is the interval between two checks. Sources are asked at least that often, if they answer.
	alertEvery   = 10 * time.Second
	alertTimeout = 10 * time.Second
	// alertTries is the maximum number of attempts to send an alert. With the pauses between them, they take 6 to 7 minutes.
	alertTries = 6
)

// run sends the console's alerts until ctx ends. path is the path of the console below the public URL.
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
	stop() // do not let an alert wait for a source
	for i, one := range summaries {
		samples[i] = func() alert.Sample { return one.Overview(now, page.Request{Now: time.Now()}).Judged }
	}
	pages := a.pages
	if pages != "" {
		pages += path
	}
	alert.Run(ctx, a.every, samples, environment, pages, sender.Send)
}
