package httpapi

import (
	"errors"
	"fmt"
	"mime"
	"net/http"
	"strconv"
	"unicode/utf8"

	"github.com/jetpull/jetpull/broker/internal/domain"
	"github.com/jetpull/jetpull/internal/service/httpserve"
)

// checkForm checks the content type, before anything else is looked at.
func checkForm(r *http.Request) error {
	const form = "application/x-www-form-urlencoded"
	given := r.Header.Get("Content-Type")
	media, _, err := mime.ParseMediaType(given)
	if (err != nil && !errors.Is(err, mime.ErrInvalidMediaParameter)) || media != form {
		return httpserve.Refuse(http.StatusUnsupportedMediaType, "", "%s: Content-Type %q: give %s", textUnsupportedMedia, given, form)
	}
	return nil
}

// readForm parses the fields of a form.
func readForm(r *http.Request) error {
	if err := r.ParseForm(); err != nil {
		if tooLarge, ok := errors.AsType[*http.MaxBytesError](err); ok {
			return tooLarge
		}
		return httpserve.BadRequest("Bad Request: the form cannot be read: %v", err)
	}
	for name, values := range r.PostForm {
		for _, value := range values {
			if !utf8.ValidString(value) {
				return httpserve.BadRequest("Bad Request: the form field %q is not UTF-8", name)
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

func lastModified(s domain.Stakeholder) string { return s.ChangedAt.UTC().Format(http.TimeFormat) }

// checkUnmodified checks the condition of a change to something that exists.
func checkUnmodified(r *http.Request, s domain.Stakeholder) error {
	switch since := r.Header.Get("If-Unmodified-Since"); since {
	case "":
		return refuse(http.StatusBadRequest, textNoCondition)
	case lastModified(s):
		return nil
	default:
		return errPrecondition
	}
}

// fillStakeholder reads name and token. Without a token it makes one.
func fillStakeholder(r *http.Request, id string, s *domain.Stakeholder) error {
	if err := domain.CheckSize(id, domain.MaxText); err != nil {
		return badField("ID", err)
	}
	s.ID = id
	if s.Token = r.PostFormValue("token"); s.Token == "" {
		s.Token = domain.NewToken()
	}
	if err := domain.CheckToken(s.Token); err != nil {
		return badField("token", err)
	}
	if s.Name = r.PostFormValue("name"); s.Name == "" {
		s.Name = id
	}
	return nil
}

// fillConsumer reads what a consumer has beside name and token.
func fillConsumer(r *http.Request, c *domain.Consumer) (err error) {
	c.Channel = r.PathValue("channel")
	c.CallbackURL = r.PostFormValue("callbackUrl")
	if _, err := domain.ParseCallbackURL(c.CallbackURL); err != nil {
		return badField("callbackUrl", err)
	}
	if c.Type, err = domain.ParseConsumerType(r.PostFormValue("type")); err != nil {
		return badField("type", err)
	}
	c.Concurrency, c.RateLimit = 0, 0
	if s := r.PostFormValue("concurrency"); s != "" {
		if c.Concurrency, err = strconv.Atoi(s); err != nil || c.Concurrency < 1 || c.Concurrency > 1<<16 {
			return badField("concurrency", fmt.Errorf("%q: give a whole number from 1 to 65536", s))
		}
	}
	if s := r.PostFormValue("rateLimit"); s != "" {
		if c.RateLimit, err = strconv.ParseFloat(s, 64); err != nil || !(c.RateLimit > 0 && c.RateLimit <= 1e6) {
			return badField("rateLimit", fmt.Errorf("%q: give a number of callbacks per second, more than 0 and up to 1000000", s))
		}
	}
	c.SigningSecret = r.PostFormValue("signingSecret")
	if c.EventTypes, err = domain.ParseEventTypes(r.PostFormValue("eventTypes")); err != nil {
		return badField("eventTypes", err)
	}
	return nil
}
