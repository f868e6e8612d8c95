package work

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/jetpull/jetpull/internal/service/httpserve"
	"github.com/jetpull/jetpull/internal/webhook"
	"github.com/jetpull/jetpull/relay/internal/store"
)

const userAgent = "jetpull-relay"

func itoa(n int) string { return strconv.Itoa(n) }

// WebhookID is the webhook-id of a message.
func WebhookID(source, id string) string {
	return httpserve.EscapeID(source) + "/" + httpserve.EscapeID(id)
}

// reserved headers are the relay's, or the connection's.
var reserved = map[string]bool{
	"Host": true, "Content-Length": true, "Transfer-Encoding": true, "Connection": true, "Keep-Alive": true, "Upgrade": true,
	"Te": true, "Trailer": true, "Proxy-Authorization": true, "Proxy-Connection": true, "Expect": true,
}

// reservedHeader tells whether a sender must not set a header of requests to receivers.
func reservedHeader(name string) bool {
	name = http.CanonicalHeaderKey(name)
	return reserved[name] || strings.HasPrefix(name, "Webhook-") || strings.HasPrefix(name, "Relay-")
}

// maxHeaders bounds the headers that a sender sets, with their values in bytes.
const maxHeaders = 16 << 10

// CheckHeaders returns why a sender cannot set the headers of requests to a receiver, or nil.
func CheckHeaders(headers map[string]string) error {
	size, names := 0, map[string]bool{}
	for name, value := range headers {
		name = http.CanonicalHeaderKey(name)
		size += len(name) + len(value)
		switch {
		case !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidHeaderFieldValue(value):
			return fmt.Errorf("header %q is not one that HTTP can carry", name)
		case reservedHeader(name):
			return fmt.Errorf("header %q is the relay's", name)
		case names[name]:
			return fmt.Errorf("header %q is given twice", name)
		}
		names[name] = true
	}
	if size > maxHeaders {
		return fmt.Errorf("headers have %d bytes: %d are the most", size, maxHeaders)
	}
	return nil
}

// post makes the POST of an attempt.
func (w *core) post(ctx context.Context, r store.Receiver, e *store.Entry) (*webhook.Answer, error) {
	h := http.Header{"User-Agent": {userAgent}}
	h.Set("Content-Type", "application/json")
	if !json.Valid(e.Payload) {
		h.Set("Content-Type", "application/octet-stream")
	}
	for name, value := range e.Headers {
		if !reservedHeader(name) {
			h.Set(name, value)
		}
	}
	h.Set("Relay-Attempt", itoa(e.Attempt))
	w.sign(h, r.Secrets, WebhookID(e.Source, e.ID), e.Payload)
	answer, err := w.exchange(ctx, "post", e, webhook.Request{
		Method: http.MethodPost, URL: r.PostEndpoint, Header: h, Body: e.Payload, Timeout: r.Timeout, Limit: w.cfg.MaxResponse,
	})
	w.fit(answer)
	return answer, err
}

// sign sets the headers of Standard Webhooks, the signature only where there are secrets. Those were checked when they were configured.
func (w *core) sign(h http.Header, secrets []string, id string, payload []byte) {
	now := wall()
	h.Set(webhook.HeaderID, id)
	h.Set(webhook.HeaderTimestamp, itoa(int(now.Unix())))
	if len(secrets) == 0 {
		return
	}
	signer, err := webhook.NewSigner(strings.Join(secrets, " "))
	if err != nil {
		w.log.Error("a request goes out unsigned", "error", err)
		return
	}
	signer.Sign(h, id, now, payload)
}

// ask asks a receiver's status endpoint about a message.
func (w *core) ask(ctx context.Context, r store.Receiver, e *store.Entry) (*webhook.Answer, error) {
	h := http.Header{"User-Agent": {userAgent}}
	w.sign(h, r.Secrets, WebhookID(e.Source, e.ID), nil)
	target := strings.NewReplacer("{source_id}", escape(e.Source), "{message_id}", escape(e.ID)).Replace(r.StatusEndpoint)
	answer, err := w.exchange(ctx, "poll", e, webhook.Request{
		Method: http.MethodGet, URL: target, Header: h, Timeout: r.Timeout, Limit: w.cfg.MaxResponse,
	})
	w.log.Debug("poll", "node", w.node, "source", e.Source, "message", e.ID, "receiver", r.Name, "result", result(answer, err), "trace", traceID(e.Trace))
	if err != nil {
		return nil, err
	}
	w.cfg.Metrics.polled(r.Name, answer.Code)
	if unknown(answer) {
		return nil, answer.Broken
	}
	w.fit(answer)
	return answer, err
}

// escape writes an ID so that it can stand in a path as well as in a query.
func escape(id string) string {
	if strings.Trim(id, ".") == "" {
		return strings.ReplaceAll(id, ".", "%2E")
	}
	return strings.ReplaceAll(url.QueryEscape(id), "+", "%20")
}
