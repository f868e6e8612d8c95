package httpapi

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jetpull/jetpull/broker/internal/domain"
	"github.com/jetpull/jetpull/broker/internal/work"
	"github.com/jetpull/jetpull/internal/service/httpserve"
	"github.com/jetpull/jetpull/internal/service/webhook"
)

type jobModel struct {
	ListenerEndpoint string
	ListenerName     string
	Status           string
	StatusChangedAt  time.Time
}

type messageModel struct {
	ID              string
	Payload         string
	PayloadEncoding string `json:",omitempty"`
	ContentType     string
	EventType       string `json:",omitempty"`
	ProducedBy      string
	ReceivedAt      time.Time
	DispatchedAt    time.Time
	Status          string
	Jobs            []messageJob
	Headers         map[string]string
}

// payloadText returns a payload as text for JSON. A payload that JSON cannot carry is encoded in base64, as encoding indicates.
func payloadText(payload []byte) (text, encoding string) {
	if utf8.Valid(payload) {
		return string(payload), ""
	}
	return base64.StdEncoding.EncodeToString(payload), "base64"
}

// shownHeaders returns headers, or an empty map if it is nil, for JSON.
func shownHeaders(headers map[string]string) map[string]string {
	if headers == nil {
		return map[string]string{}
	}
	return headers
}

// checkChannelToken makes the first two checks of requests that need a channel's token.
func (a *API) checkChannelToken(r *http.Request) (domain.Channel, error) {
	c, err := a.channel(r)
	if errors.Is(err, domain.ErrNotFound) && a.opts.Admin.Token != "" && !a.isAdmin(r) {
		return c, errChannelToken // without a token, the response must not reveal that the channel exists
	}
	if err != nil {
		return c, err
	}
	if !domain.TokenMatches(c.Token, r.Header.Get("X-Broker-Channel-Token")) {
		return c, errChannelToken
	}
	return c, nil
}

// checkProducer checks a broadcast in the contract's order. An access token with the role publish replaces the tokens of the channel and the
// producer.
func (a messages) checkProducer(r *http.Request) (domain.Channel, domain.Producer, error) {
	role, unknown := a.Directory.RoleOf(r.PathValue("channel"), adminToken(r))
	publishes := role >= domain.RolePublish
	check := a.checkChannelToken
	if publishes {
		check = a.channel
	} else if unknown != nil && r.Header.Get("X-Broker-Channel-Token") == "" {
		return domain.Channel{}, domain.Producer{}, unknown
	}
	c, err := check(r)
	if err != nil {
		return c, domain.Producer{}, err
	}
	p, err := a.Directory.Producers.Find(r.Context(), "", r.Header.Get("X-Broker-Producer-ID"))
	if errors.Is(err, domain.ErrNotFound) {
		return c, p, refuse(http.StatusUnauthorized, "producer could not be found")
	}
	if err != nil {
		return c, p, err
	}
	if !publishes && !domain.TokenMatches(p.Token, r.Header.Get("X-Broker-Producer-Token")) {
		return c, p, refuse(http.StatusForbidden, "producer token does not match")
	}
	return c, p, nil
}

func (a messages) broadcast(w http.ResponseWriter, r *http.Request) (err error) {
	channel, producer, err := a.checkProducer(r)
	if err != nil {
		return err
	}
	ctx, trace, end := work.StartSpan(r.Context(), "broadcast", r.Header.Get("traceparent"))
	defer func() { end(err) }()
	payload, err := httpserve.ReadBody(r)
	if err != nil {
		return err
	}
	priority, err := priorityOf(r)
	if err != nil {
		return err
	}
	m := domain.Message{
		ID: r.Header.Get("X-Broker-Message-ID"), Channel: channel.ID, Producer: producer.ID,
		ContentType: r.Header.Get("Content-Type"), EventType: r.Header.Get("X-Broker-Event-Type"), Priority: priority, Headers: metadataOf(r),
		Payload: payload, Trace: trace,
	}
	m.ContentType = cmp.Or(m.ContentType, "application/octet-stream")
	kind := "message"
	if at := r.Header.Get("X-Broker-Scheduled-For"); at != "" {
		kind = "scheduled-message"
		m, err = a.schedule(r, m, at)
	} else {
		m, err = a.b.Broadcasts.Broadcast(ctx, m)
	}
	if err == nil {
		w.Header().Set("Location", link(r, "channel", channel.ID, kind, m.ID))
	}
	return httpserve.Done(w, http.StatusCreated, err)
}

func (a messages) schedule(r *http.Request, m domain.Message, at string) (domain.Message, error) {
	when, err := time.Parse(time.RFC3339, at)
	if err != nil {
		return m, httpserve.BadRequest("invalid date format for X-Broker-Scheduled-For, expected ISO-8601/RFC3339 format: %q: give a time such as "+
			"2026-01-02T15:04:05Z", at)
	}
	m, err = a.b.Broadcasts.Schedule(r.Context(), m, when)
	if errors.Is(err, domain.ErrScheduleTooSoon) {
		minutes := strconv.FormatFloat(a.b.Rules.MinDelay.Minutes(), 'f', -1, 64)
		return m, refuse(http.StatusPreconditionFailed, "scheduled time must be at least "+minutes+" minutes in the future")
	}
	return m, err
}

func priorityOf(r *http.Request) (int, error) {
	text := r.Header.Get("X-Broker-Message-Priority")
	if text == "" {
		return 0, nil
	}
	p, err := strconv.ParseUint(text, 10, 31)
	if err != nil {
		return 0, httpserve.BadRequest("X-Broker-Message-Priority %q: give a whole number from 0 to %d", text, math.MaxInt32)
	}
	return int(p), nil
}

// notMetadata lists headers that are never stored, even if a producer names them. They contain secrets that every reader and consumer would see.
var notMetadata = map[string]bool{
	"X-Broker-Channel-Token": true, "X-Broker-Producer-Token": true, "X-Broker-Consumer-Token": true,
	"X-Broker-Admin-Token": true, "X-Broker-Signature": true, "Authorization": true, "Cookie": true,
}

// metadataOf returns the headers that the request names as metadata, except secrets and headers of the connection. It includes the content encoding
// even if the request does not name it, because a consumer cannot read the payload without it.
func metadataOf(r *http.Request) map[string]string {
	const encoding = "Content-Encoding"
	names := strings.Split(strings.Join(r.Header.Values("X-Broker-Metadata-Headers"), ","), ",")
	if !slices.ContainsFunc(names, func(name string) bool { return strings.EqualFold(strings.TrimSpace(name), encoding) }) {
		names = append(names, encoding)
	}
	kept := map[string]string{}
	for _, name := range names {
		name = strings.TrimSpace(name)
		own := http.CanonicalHeaderKey(name)
		if value := r.Header.Get(name); value != "" && !notMetadata[own] && !webhook.OfConnection(own) {
			kept[name] = value
		}
	}
	return kept
}

func (a messages) getMessage(r *http.Request, c domain.Channel) (any, error) {
	m, err := a.b.Messages.Message(r.Context(), c.ID, r.PathValue("message"))
	if err != nil {
		return nil, err
	}
	model := messageModel{
		ID: m.ID, ContentType: m.ContentType, EventType: m.EventType, ProducedBy: a.producerName(r.Context(), m.Producer), ReceivedAt: m.ReceivedAt,
		DispatchedAt: m.ReceivedAt, Status: "DISPATCHED", Headers: shownHeaders(m.Headers),
	}
	model.Payload, model.PayloadEncoding = payloadText(m.Payload)
	model.Jobs, err = a.jobsOfMessage(r, m)
	return model, err
}

// messageJob is a job in the list of a message's jobs.
type messageJob struct {
	jobModel
	ConsumerURL string
	// Attempts and AttemptsURL are set for push consumers only.
	Attempts    *int   `json:",omitempty"`
	AttemptsURL string `json:",omitempty"`
}

func (a messages) jobsOfMessage(r *http.Request, m domain.Message) ([]messageJob, error) {
	jobs := a.b.Index.JobsOf(m.Channel, m.Seq)
	if err := a.b.Records.Complete(r.Context(), jobs); err != nil {
		return nil, err
	}
	models := []messageJob{}
	for _, j := range jobs {
		k, ok := a.b.Index.Consumer(j.ID.Consumer)
		if !ok {
			continue
		}
		k.CallbackURL = a.shownURL(r, k.CallbackURL)
		shown := messageJob{jobModel: modelOfJob(j, k), ConsumerURL: link(r, "channel", k.Channel, "consumer", k.ID)}
		if k.Type == domain.Push {
			shown.Attempts = &j.Attempts
			shown.AttemptsURL = link(r, "channel", k.Channel, "consumer", k.ID, "job", j.ID.String()) + "/attempts"
		}
		models = append(models, shown)
	}
	return models, nil
}

func modelOfJob(j domain.Job, k domain.Consumer) jobModel {
	return jobModel{ListenerEndpoint: k.CallbackURL, ListenerName: k.Name, Status: j.Status.String(), StatusChangedAt: j.ChangedAt}
}

func (a messages) producerName(ctx context.Context, id string) string {
	if p, err := a.Directory.Producers.Find(ctx, "", id); err == nil {
		return p.Name
	}
	return id
}

func (a messages) listMessages(r *http.Request, c domain.Channel) (any, error) {
	page, status, err := listed(r)
	if err != nil {
		return nil, err
	}
	var list []domain.Message
	if status != domain.Pending { // every message is dispatched
		if slices.ContainsFunc(searchFields, r.URL.Query().Has) {
			return a.searchMessages(r, c, page)
		}
		if list, err = a.b.Messages.InOrder(r.Context(), a.b.Index.MessageSeqs(c.ID, page)); err != nil {
			return nil, err
		}
	}
	return listOfMessages(r, list, "message"), nil
}

// listOfMessages is a list of links to messages, or to scheduled ones.
func listOfMessages(r *http.Request, list []domain.Message, kind string) listResult {
	url := func(r *http.Request, m domain.Message) string { return link(r, "channel", m.Channel, kind, m.ID) }
	return listOf(r, list, url, func(m domain.Message) domain.Position { return domain.Position{Seq: m.Seq} })
}

type countModel struct {
	Count int
	Links map[string]string
}

// messagesStatus returns counts of 0 for a channel that does not exist, as the original does.
func (a messages) messagesStatus(r *http.Request) (any, error) {
	id := r.PathValue("channel")
	counts := map[string]countModel{}
	add := func(name, list string, status domain.MessageStatus, count int) {
		if count > 0 {
			counts[name] = countModel{count, map[string]string{"messages": fmt.Sprintf("%s?status=%d", link(r, "channel", id, list), status)}}
		}
	}
	add("DISPATCHED", "messages", domain.Dispatched, a.b.Index.CountMessages(id))
	scheduled := a.b.Index.CountScheduled(id)
	add("SCHEDULED_SCHEDULED", "scheduled-messages", domain.Pending, scheduled.Pending)
	add("SCHEDULED_DISPATCHED", "scheduled-messages", domain.Dispatched, scheduled.Dispatched)
	answer := map[string]any{"counts": counts}
	if !scheduled.Next.IsZero() {
		answer["next_scheduled_message_at"] = scheduled.Next
	}
	return answer, nil
}

type scheduledModel struct {
	ID               string            `json:"id"`
	MessageID        string            `json:"messageId"`
	ContentType      string            `json:"contentType"`
	EventType        string            `json:"eventType,omitempty"`
	Priority         int               `json:"priority"`
	ProducedBy       string            `json:"producedBy"`
	DispatchSchedule time.Time         `json:"dispatchSchedule"`
	DispatchedAt     *time.Time        `json:"dispatchedAt"`
	Status           string            `json:"status"`
	Payload          string            `json:"payload"`
	PayloadEncoding  string            `json:"payloadEncoding,omitempty"`
	Headers          map[string]string `json:"headers"`
}

func (a messages) getScheduled(r *http.Request, c domain.Channel) (any, error) {
	s, err := a.b.Messages.Scheduled(r.Context(), c.ID, r.PathValue("message"))
	if err != nil {
		return nil, err
	}
	model := scheduledModel{
		// The ID is an xid of the sequence and the number 0, which no consumer has.
		ID: domain.JobID{Seq: s.Seq}.String(), MessageID: s.ID, ContentType: s.ContentType, EventType: s.EventType, Priority: s.Priority,
		ProducedBy: s.Producer, DispatchSchedule: s.For, Status: "SCHEDULED", Headers: shownHeaders(s.Headers),
	}
	if !s.DispatchedAt.IsZero() {
		model.DispatchedAt, model.Status = &s.DispatchedAt, "DISPATCHED"
	}
	model.Payload, model.PayloadEncoding = payloadText(s.Payload)
	return model, nil
}

func (a messages) listScheduled(r *http.Request, c domain.Channel) (any, error) {
	page, status, err := listed(r)
	if err != nil {
		return nil, err
	}
	items, err := a.b.Messages.InOrder(r.Context(), a.b.Index.ScheduledSeqs(c.ID, status, page))
	if err != nil {
		return nil, err
	}
	list := listOfMessages(r, items, "scheduled-message")
	return map[string]any{"result": list.Result, "pages": list.Pages}, nil
}

// cancelScheduled requires the same tokens as a broadcast, or the right to change the channel.
func (a messages) cancelScheduled(w http.ResponseWriter, r *http.Request) error {
	if !a.managesByToken(r) {
		if _, _, err := a.checkProducer(r); err != nil {
			return err
		}
	}
	return httpserve.Done(w, http.StatusNoContent, a.b.Messages.CancelScheduled(r.Context(), r.PathValue("channel"), r.PathValue("message")))
}
