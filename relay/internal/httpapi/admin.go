package httpapi

import (
	"cmp"
	"context"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode"

	"golang.org/x/net/http/httpguts"

	"github.com/jetpull/jetpull/internal/service/httpserve"
	"github.com/jetpull/jetpull/internal/service/webhook"
	"github.com/jetpull/jetpull/internal/service/webhook/gate"
	"github.com/jetpull/jetpull/relay/internal/store"
	"github.com/jetpull/jetpull/relay/internal/work"
)

const (
	maxSeconds  = 365 * 24 * 3600
	maxRetries  = 10_000
	maxSecrets  = 16
	maxEndpoint = 4 << 10 // bytes: every relay process keeps it in memory
)

// receiverBody is the configuration of a receiver in requests and answers. Durations are in seconds. Without secrets, the present ones are kept.
// Answers have no secrets.
type receiverBody struct {
	store.ReceiverConfig
	Window     float64 `json:"window_size"`
	RetryAfter float64 `json:"retry_after"`
	Timeout    float64 `json:"timeout"`
	TTL        float64 `json:"ttl"`
	Enable     *bool   `json:"enable,omitempty"` // of PATCH; true enables a receiver that answered 410, as a PUT does
}

var defaultReceiver = receiverBody{Window: 1, RetryAfter: 5, Timeout: 30, ReceiverConfig: store.ReceiverConfig{MaxRetries: 5}}

// receiverView is the view of a receiver. It has the number of secrets instead of the secrets.
type receiverView struct {
	Name string `json:"name"`
	receiverBody
	SecretCount int            `json:"secret_count"`
	State       *receiverState `json:"state,omitempty"`
}

type receiverState struct {
	work.State
	Disabled bool   `json:"disabled"`
	Backlog  uint64 `json:"backlog"`
	// Oldest is the age of the oldest message that waits, in seconds. 0 means that none waits.
	Oldest float64 `json:"oldest"`
	work.Seen
	// Failed is how many of its messages are on the list of failed messages.
	Failed int `json:"failed"`
}

func viewReceiver(r store.Receiver) receiverView {
	view := receiverView{Name: r.Name, SecretCount: len(r.Secrets), receiverBody: receiverBody{
		ReceiverConfig: r.ReceiverConfig, Window: r.Window.Seconds(), RetryAfter: r.RetryAfter.Seconds(), Timeout: r.Timeout.Seconds(),
		TTL: r.TTL.Seconds(),
	}}
	view.Secrets = nil
	return view
}

// checkEndpoint checks a URL that may contain the placeholders.
func checkEndpoint(field, endpoint string, empty bool, placeholders ...string) error {
	if endpoint == "" && empty {
		return nil
	}
	if len(endpoint) > maxEndpoint {
		return httpserve.BadRequest("%s: it has %d bytes: give %d at most", field, len(endpoint), maxEndpoint)
	}
	if err := webhook.CheckTemplate(endpoint, placeholders...); err != nil {
		return httpserve.BadRequest("%s: %v", field, err)
	}
	if u, err := url.Parse(endpoint); err != nil || u.User != nil {
		return httpserve.BadRequest("%s: it has a user or password, which would be shown to others", field)
	}
	return nil
}

func checkSecrets(secrets []string) error {
	if len(secrets) > maxSecrets {
		return httpserve.BadRequest("secrets: there are %d, and %d are the most", len(secrets), maxSecrets)
	}
	for i, secret := range secrets {
		// The error must not contain the secret.
		if _, err := webhook.NewSigner(secret); err != nil || strings.ContainsAny(secret, " \t\r\n") || !strings.HasPrefix(secret, "whsec_") {
			return httpserve.BadRequest("secrets: number %d: give whsec_ and the base64 of 24 to 64 bytes", i+1)
		}
	}
	return nil
}

func (b *receiverBody) apply(r *store.Receiver) error {
	err := cmp.Or(checkEndpoint("post_endpoint", b.PostEndpoint, false),
		checkEndpoint("status_endpoint", b.StatusEndpoint, true, work.SourcePlaceholder, work.MessagePlaceholder), checkSecrets(b.Secrets))
	if err != nil {
		return err
	}
	for _, d := range []struct {
		field        string
		value, least float64
		into         *time.Duration
	}{
		{"window_size", b.Window, 0.001, &r.Window},
		{"retry_after", b.RetryAfter, 0, &r.RetryAfter},
		{"timeout", b.Timeout, 0.001, &r.Timeout},
		{"ttl", b.TTL, 0, &r.TTL},
	} {
		if !(d.value >= d.least && d.value <= maxSeconds) {
			return httpserve.BadRequest("%s: %g is not a number of seconds from %g to %d", d.field, d.value, d.least, maxSeconds)
		}
		*d.into = time.Duration(math.Round(d.value * float64(time.Second))) // a value that a client has read is the same when it is written back
	}
	b.Order, b.UnknownOutcome = cmp.Or(b.Order, store.OrderNone), cmp.Or(b.UnknownOutcome, store.AtLeastOnce)
	switch {
	case b.MaxRetries < 0 || b.MaxRetries > maxRetries:
		return httpserve.BadRequest("max_retries: %d is not a number from 0 to %d", b.MaxRetries, maxRetries)
	case b.RateLimit < 0 || b.RateLimit > gate.MaxLimit:
		return httpserve.BadRequest("rate_limit: %d is not a number from 0, which is no limit, to %d", b.RateLimit, gate.MaxLimit)
	case !slices.Contains([]store.Order{store.OrderNone, store.OrderSource, store.OrderReceiver}, b.Order):
		return httpserve.BadRequest("order: %q is none of none, source and receiver", b.Order)
	case b.UnknownOutcome != store.AtLeastOnce && b.UnknownOutcome != store.AtMostOnce:
		return httpserve.BadRequest("unknown_outcome: %q is neither at_least_once nor at_most_once", b.UnknownOutcome)
	}
	if b.Secrets == nil {
		b.Secrets = r.Secrets
	}
	r.ReceiverConfig = b.ReceiverConfig
	return nil
}

// changeReceiver is PUT, which creates a receiver and sets omitted fields to their defaults, or PATCH, which keeps omitted fields. A client that PUTs
// a receiver which it has read undoes changes by others since then, and enables the receiver if it was disabled since then.
func (a *API) changeReceiver(put bool) httpserve.Handler {
	return httpserve.ShowOf(httpserve.ReadBody, func(r *http.Request, data []byte) (any, error) {
		receiver, err := a.store.Receivers.Change(r.Context(), r.PathValue("name"), put, func(old *store.Receiver) error {
			disabled, body := old.Disabled, viewReceiver(*old).receiverBody
			if put {
				body = defaultReceiver
			}
			err := cmp.Or(httpserve.DecodeJSON(data, &body), body.apply(old))
			if put && body.Enable != nil {
				err = httpserve.BadRequest("enable: a PUT enables the receiver; leave it out, or use PATCH")
			}
			old.Disabled = disabled && !put && (body.Enable == nil || !*body.Enable)
			return err
		})
		return viewReceiver(receiver), err
	})
}

func (a *API) getReceiver(r *http.Request) (any, error) {
	receiver, err := a.store.Receivers.Read(r.Context(), r.PathValue("name"))
	if err != nil {
		return nil, err
	}
	backlog, err := a.store.Backlog(r.Context(), store.ToReceiver, receiver.Name)
	if err != nil {
		return nil, err
	}
	failed, _ := a.store.FailedDepth()
	return a.viewWithState(r.Context(), receiver, backlog, failed[receiver.Name])
}

func (a *API) viewWithState(ctx context.Context, r store.Receiver, backlog uint64, failed int) (receiverView, error) {
	view := viewReceiver(r)
	oldest, err := a.store.Oldest(ctx, store.ToReceiver, r.Name, backlog)
	view.State = &receiverState{
		State: a.work.State(r), Disabled: r.Disabled, Backlog: backlog, Oldest: oldest.Seconds(),
		Seen: a.work.Metrics.Seen(r.Name), Failed: failed,
	}
	return view, err
}

func (a *API) listReceivers(r *http.Request) (any, error) {
	backlogs, err := a.store.Backlogs(r.Context(), store.ToReceiver)
	if err != nil {
		return nil, err
	}
	items := []receiverView{}
	failed, _ := a.store.FailedDepth()
	for _, receiver := range a.store.Receivers.All() {
		view, err := a.viewWithState(r.Context(), receiver, backlogs[receiver.Name], failed[receiver.Name])
		if err != nil {
			return nil, err
		}
		items = append(items, view)
	}
	return map[string]any{"items": items}, nil
}

// deleteReceiver marks a receiver as deleted. The workers then fail the messages that wait for it.
func (a *API) deleteReceiver(w http.ResponseWriter, r *http.Request) error {
	gone, err := a.store.Receivers.Change(r.Context(), r.PathValue("name"), false, func(old *store.Receiver) error {
		old.Deleted, old.Secrets = true, nil
		return nil
	})
	if err == nil {
		err = a.store.DropWindow(r.Context(), gone.Name)
	}
	return httpserve.Done(w, http.StatusNoContent, err)
}

// senderView is the view of a sender, without token and secrets.
type senderView struct {
	Name             string   `json:"name"`
	CallbackEndpoint string   `json:"callback_endpoint"`
	SecretCount      int      `json:"secret_count"`
	Sources          []string `json:"sources"`
}

func viewSender(s store.Sender) senderView {
	return senderView{s.Name, s.CallbackEndpoint, len(s.Secrets), s.Sources}
}

const (
	noCallback = "none"
	maxToken   = 1024
	maxSources = 10_000
)

// configure applies the body of a PUT or PATCH to the configuration of a sender. A PUT keeps an omitted token and omitted secrets. A PATCH keeps all
// omitted fields.
func configure(s *store.SenderConfig, put bool, data []byte) error {
	was := *s
	*s = store.SenderConfig{} // because decoding would overwrite the elements of a list that the registry's memory shares
	if !put {
		s.CallbackEndpoint = was.CallbackEndpoint
	}
	err := httpserve.DecodeJSON(data, s)
	if s.CallbackEndpoint == noCallback {
		s.CallbackEndpoint = ""
	}
	s.Token = cmp.Or(s.Token, was.Token)
	if s.Secrets == nil {
		s.Secrets = was.Secrets
	}
	if s.Sources == nil && !put {
		s.Sources = was.Sources
	}
	switch err = cmp.Or(err, checkEndpoint("callback_endpoint", s.CallbackEndpoint, true), checkSecrets(s.Secrets)); {
	case err != nil:
		return err
	case s.Token == "":
		return httpserve.BadRequest("token is missing: give up to %d characters without spaces", maxToken)
	case len(s.Token) > maxToken || strings.ContainsFunc(s.Token, unicode.IsSpace) || !httpguts.ValidHeaderFieldValue(s.Token):
		return httpserve.BadRequest("token: give up to %d characters without spaces and control characters", maxToken)
	case len(s.Sources) == 0:
		return httpserve.BadRequest("sources: give the prefixes of this sender's sources; an empty one is all")
	case len(s.Sources) > maxSources:
		return httpserve.BadRequest("sources: there are %d, and %d are the most", len(s.Sources), maxSources)
	}
	for _, prefix := range s.Sources {
		if len(prefix) > work.MaxID {
			return httpserve.BadRequest("sources: %q is longer than %d bytes", prefix, work.MaxID)
		}
	}
	return nil
}

// changeSender is PUT, which creates a sender, or PATCH.
func (a *API) changeSender(put bool) httpserve.Handler {
	return httpserve.ShowOf(httpserve.ReadBody, func(r *http.Request, data []byte) (any, error) {
		s, err := a.store.Senders.Change(r.Context(), r.PathValue("name"), put, func(old *store.Sender) error {
			return configure(&old.SenderConfig, put, data)
		})
		return viewSender(s), err
	})
}

func (a *API) getSender(r *http.Request) (any, error) {
	s, err := a.store.Senders.Read(r.Context(), r.PathValue("name"))
	return viewSender(s), err
}

func (a *API) listSenders(_ *http.Request) (any, error) {
	return listOf(a.store.Senders.All(), viewSender), nil
}

func (a *API) deleteSender(w http.ResponseWriter, r *http.Request) error {
	_, err := a.store.Senders.Change(r.Context(), r.PathValue("name"), false, func(old *store.Sender) error {
		*old = store.Sender{Named: store.Named{Name: old.Name, Revision: old.Revision, Deleted: true}}
		return nil
	})
	return httpserve.Done(w, http.StatusNoContent, err)
}
