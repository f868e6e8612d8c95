package httpapi

import (
	"context"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/jetpull/jetpull/broker/internal/domain"
)

type stakeholderModel struct {
	ID        string
	Name      string
	Token     string
	ChangedAt time.Time
}

type channelModel struct {
	stakeholderModel
	ConsumersURL      string
	MessagesURL       string
	BroadcastURL      string
	MessagesStatusURL string
}

type consumerModel struct {
	stakeholderModel
	CallbackURL        string
	DeadLetterQueueURL string
	Type               string
	Concurrency        int     `json:",omitempty"`
	RateLimit          float64 `json:",omitempty"`
	Signed             bool    `json:",omitempty"`
	State              string
	PausedAt           time.Time `json:",omitzero"`
	PausedBy           string    `json:",omitempty"`
	Breaker            string    `json:",omitempty"`
	FailingSince       time.Time `json:",omitzero"`
	EventTypes         string    `json:",omitempty"`
}

func modelOf(s domain.Stakeholder) stakeholderModel {
	return stakeholderModel{s.ID, s.Name, s.Token, s.ChangedAt}
}

func modelOfChannel(c domain.Channel) channelModel {
	return channelModel{
		stakeholderModel:  modelOf(c.Stakeholder),
		ConsumersURL:      link("channel", c.ID, "consumers"),
		MessagesURL:       link("channel", c.ID, "messages"),
		BroadcastURL:      link("channel", c.ID, "broadcast"),
		MessagesStatusURL: link("channel", c.ID, "messages-status"),
	}
}

func (a stakeholders) modelOfConsumer(ctx context.Context, c domain.Consumer) consumerModel {
	m := consumerModel{
		stakeholderModel: modelOf(c.Stakeholder), CallbackURL: c.CallbackURL,
		DeadLetterQueueURL: link("channel", c.Channel, "consumer", c.ID, "dlq"), Type: string(c.Type),
		Concurrency: c.Concurrency, RateLimit: c.RateLimit, Signed: c.SigningSecret != "", EventTypes: c.EventTypes,
		State: "active", PausedAt: c.Pause.At, PausedBy: c.Pause.Reason, FailingSince: c.FailingSince,
		Breaker: string(a.b.Dispatch.Breaker(ctx, c)),
	}
	if c.Paused() {
		m.State = "paused"
	}
	return m
}

func lastModified(s domain.Stakeholder) string { return s.ChangedAt.UTC().Format(http.TimeFormat) }

func writeStakeholder(w http.ResponseWriter, s domain.Stakeholder, model any) {
	w.Header().Set("Last-Modified", lastModified(s))
	writeJSON(w, model)
}

// checkForm checks the content type, before anything else is looked at.
func checkForm(r *http.Request) error {
	const form = "application/x-www-form-urlencoded"
	given := r.Header.Get("Content-Type")
	media, _, err := mime.ParseMediaType(given)
	if (err != nil && !errors.Is(err, mime.ErrInvalidMediaParameter)) || media != form {
		return &httpError{http.StatusUnsupportedMediaType, fmt.Sprintf("%s: Content-Type %q: give %s", textUnsupportedMedia, given, form)}
	}
	return nil
}

// readForm parses the fields of a form.
func readForm(r *http.Request) error {
	if err := r.ParseForm(); err != nil {
		if tooLarge, ok := errors.AsType[*http.MaxBytesError](err); ok {
			return tooLarge
		}
		return &httpError{http.StatusBadRequest, "Bad Request: the form cannot be read: " + err.Error()}
	}
	for name, values := range r.PostForm {
		for _, value := range values {
			if !utf8.ValidString(value) {
				return &httpError{http.StatusBadRequest, "Bad Request: the form field " + strconv.Quote(name) + " is not UTF-8"}
			}
			if limit, known := fieldSizes[name]; known {
				if err := domain.CheckSize(value, limit); err != nil {
					return badField(name, err)
				}
			}
		}
	}
	return nil
}

// fieldSizes are the sizes in bytes of those fields of forms that are stored.
var fieldSizes = map[string]int{
	"name": domain.MaxText, "token": domain.MaxText, "signingSecret": domain.MaxText, "callbackUrl": domain.MaxLongText, "eventTypes": domain.MaxLongText,
}

// checkUnmodified checks the condition of a change to something that exists.
func checkUnmodified(r *http.Request, s domain.Stakeholder) error {
	switch since := r.Header.Get("If-Unmodified-Since"); since {
	case "":
		return &httpError{http.StatusBadRequest, textNoCondition}
	case lastModified(s):
		return nil
	default:
		return errPrecondition
	}
}

var errPrecondition = &httpError{http.StatusPreconditionFailed, textPreconditionFailed}

// preconditioned renames a conflict on the registry: somebody else made or
// changed the object between the check and the write.
func preconditioned(err error) error {
	if errors.Is(err, domain.ErrConflict) {
		return errPrecondition
	}
	return err
}

// formStakeholder reads name and token; old is zero for something new.
func formStakeholder(r *http.Request, id string, old domain.Stakeholder) (domain.Stakeholder, error) {
	s := old
	if err := domain.CheckSize(id, domain.MaxText); err != nil {
		return s, badField("ID", err)
	}
	s.ID = id
	if s.Token = r.PostFormValue("token"); s.Token == "" {
		s.Token = domain.NewToken()
	}
	if err := domain.CheckToken(s.Token); err != nil {
		return s, badField("token", err)
	}
	if s.Name = r.PostFormValue("name"); s.Name == "" {
		s.Name = id
	}
	return s, nil
}

func (a stakeholders) getProducer(w http.ResponseWriter, r *http.Request) error {
	p, err := a.Directory.RefreshProducer(r.Context(), r.PathValue("producer"))
	if err != nil {
		return err
	}
	p.Token = a.shownToken(r, p.Token)
	writeStakeholder(w, p.Stakeholder, modelOf(p.Stakeholder))
	return nil
}

func (a stakeholders) putProducer(w http.ResponseWriter, r *http.Request) error {
	id := r.PathValue("producer")
	old, err := a.Directory.RefreshProducer(r.Context(), id)
	if err := checkPut(r, err, old.Stakeholder); err != nil {
		return err
	}
	form, err := formStakeholder(r, id, old.Stakeholder)
	if err != nil {
		return err
	}
	if err := domain.CheckSent(id); err != nil {
		return badField("ID "+strconv.Quote(id), err)
	}
	p, err := a.b.Registry.PutProducer(r.Context(), domain.Producer{Stakeholder: form})
	if err != nil {
		return preconditioned(err)
	}
	p.Token = form.Token // the last time that it can be shown, if it is hashed
	writeStakeholder(w, p.Stakeholder, modelOf(p.Stakeholder))
	return nil
}

// checkPut makes the checks of every PUT in their order and reads the form. The argument found is the error with which
// the old object was read.
func checkPut(r *http.Request, found error, old domain.Stakeholder) error {
	if err := checkForm(r); err != nil {
		return err
	}
	switch {
	case found == nil:
		if err := checkUnmodified(r, old); err != nil {
			return err
		}
	case !errors.Is(found, domain.ErrNotFound):
		return found
	}
	return readForm(r)
}

func (a stakeholders) listProducers(w http.ResponseWriter, r *http.Request) error {
	return writeStakeholders(w, r, a.Directory.Producers(), func(s domain.Producer) domain.Stakeholder { return s.Stakeholder },
		func(id string) string { return link("producer", id) })
}

func (a stakeholders) getChannel(w http.ResponseWriter, r *http.Request) error {
	c, err := a.Directory.RefreshChannel(r.Context(), r.PathValue("channel"))
	if err != nil {
		return err
	}
	c.Token = a.shownToken(r, c.Token)
	writeStakeholder(w, c.Stakeholder, modelOfChannel(c))
	return nil
}

func (a stakeholders) putChannel(w http.ResponseWriter, r *http.Request) error {
	id := r.PathValue("channel")
	old, err := a.Directory.RefreshChannel(r.Context(), id)
	if err := checkPut(r, err, old.Stakeholder); err != nil {
		return err
	}
	form, err := formStakeholder(r, id, old.Stakeholder)
	if err != nil {
		return err
	}
	c, err := a.b.Registry.PutChannel(r.Context(), domain.Channel{Stakeholder: form})
	if err != nil {
		return preconditioned(err)
	}
	c.Token = form.Token // the last time that it can be shown, if it is hashed
	writeStakeholder(w, c.Stakeholder, modelOfChannel(c))
	return nil
}

func (a stakeholders) listChannels(w http.ResponseWriter, r *http.Request) error {
	return writeStakeholders(w, r, a.Directory.Channels(), func(s domain.Channel) domain.Stakeholder { return s.Stakeholder },
		func(id string) string { return link("channel", id) })
}

// channel finds the channel of a request.
func (a *API) channel(r *http.Request) (domain.Channel, error) {
	return a.Directory.Channel(r.Context(), r.PathValue("channel"))
}

// consumer finds the consumer of a request.
func (a *API) consumer(r *http.Request) (domain.Consumer, error) {
	return a.Directory.Consumer(r.Context(), r.PathValue("channel"), r.PathValue("consumer"))
}

// refreshConsumer is consumer, after a look at what is stored.
func (a stakeholders) refreshConsumer(r *http.Request) (domain.Consumer, error) {
	return a.Directory.RefreshConsumer(r.Context(), r.PathValue("channel"), r.PathValue("consumer"))
}

func (a stakeholders) getConsumer(w http.ResponseWriter, r *http.Request) error {
	c, err := a.refreshConsumer(r)
	if err != nil {
		return err
	}
	c.Token, c.CallbackURL = a.shownToken(r, c.Token), a.shownURL(r, c.CallbackURL)
	writeStakeholder(w, c.Stakeholder, a.modelOfConsumer(r.Context(), c))
	return nil
}

func (a stakeholders) putConsumer(w http.ResponseWriter, r *http.Request) error {
	if err := checkForm(r); err != nil {
		return err
	}
	channel, err := a.channel(r)
	if err != nil {
		return err
	}
	id := r.PathValue("consumer")
	old, err := a.Directory.RefreshConsumer(r.Context(), channel.ID, id)
	if err := checkPut(r, err, old.Stakeholder); err != nil {
		return err
	}
	c, err := formConsumer(r, channel, id, old)
	if err != nil {
		return err
	}
	c, err = a.b.Registry.PutConsumer(r.Context(), c)
	if err != nil {
		return preconditioned(err)
	}
	writeStakeholder(w, c.Stakeholder, a.modelOfConsumer(r.Context(), c))
	return nil
}

func formConsumer(r *http.Request, channel domain.Channel, id string, old domain.Consumer) (domain.Consumer, error) {
	c := old
	var err error
	if c.Stakeholder, err = formStakeholder(r, id, old.Stakeholder); err != nil {
		return c, err
	}
	c.Channel = channel.ID
	c.CallbackURL = r.PostFormValue("callbackUrl")
	if _, err := domain.ParseCallbackURL(c.CallbackURL); err != nil {
		return c, badField("callbackUrl", err)
	}
	if c.Type, err = domain.ParseConsumerType(r.PostFormValue("type")); err != nil {
		return c, badField("type", err)
	}
	c.Concurrency, c.RateLimit = 0, 0
	if s := r.PostFormValue("concurrency"); s != "" {
		if c.Concurrency, err = strconv.Atoi(s); err != nil || c.Concurrency < 1 || c.Concurrency > 1<<16 {
			return c, badField("concurrency", fmt.Errorf("%q: give a whole number from 1 to 65536", s))
		}
	}
	if s := r.PostFormValue("rateLimit"); s != "" {
		if c.RateLimit, err = strconv.ParseFloat(s, 64); err != nil || !(c.RateLimit > 0 && c.RateLimit <= 1e6) {
			return c, badField("rateLimit", fmt.Errorf("%q: give a number of callbacks per second, more than 0 and up to 1000000", s))
		}
	}
	c.SigningSecret = r.PostFormValue("signingSecret")
	if c.EventTypes, err = domain.ParseEventTypes(r.PostFormValue("eventTypes")); err != nil {
		return c, badField("eventTypes", err)
	}
	return c, nil
}

func badField(name string, err error) error {
	return &httpError{http.StatusBadRequest, "Bad Request: " + name + ": " + err.Error()}
}

func (a stakeholders) deleteConsumer(w http.ResponseWriter, r *http.Request) error {
	c, err := a.refreshConsumer(r)
	if err != nil {
		return err
	}
	if err := checkUnmodified(r, c.Stakeholder); err != nil {
		return err
	}
	if err := a.b.Registry.DeleteConsumer(r.Context(), c); err != nil {
		return preconditioned(err)
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (a stakeholders) pauseConsumer(w http.ResponseWriter, r *http.Request) error {
	c, err := a.b.Dispatch.PauseConsumer(r.Context(), r.PathValue("channel"), r.PathValue("consumer"), domain.PausedByOperator)
	return a.writePaused(w, r, c, err)
}

func (a stakeholders) resumeConsumer(w http.ResponseWriter, r *http.Request) error {
	c, err := a.b.Dispatch.ResumeConsumer(r.Context(), r.PathValue("channel"), r.PathValue("consumer"))
	return a.writePaused(w, r, c, err)
}

func (a stakeholders) writePaused(w http.ResponseWriter, r *http.Request, c domain.Consumer, err error) error {
	if errors.Is(err, domain.ErrNotFound) {
		return errNotFound
	}
	if err != nil {
		return preconditioned(err)
	}
	writeStakeholder(w, c.Stakeholder, a.modelOfConsumer(r.Context(), c))
	return nil
}

func (a stakeholders) listConsumers(w http.ResponseWriter, r *http.Request) error {
	c, err := a.channel(r)
	if err != nil {
		return err
	}
	return writeStakeholders(w, r, a.Directory.Consumers(c.ID), func(k domain.Consumer) domain.Stakeholder { return k.Stakeholder },
		func(id string) string { return link("channel", c.ID, "consumer", id) })
}
