package httpapi

import (
	"cmp"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	directory "github.com/jetpull/jetpull/broker/internal/admin"
	"github.com/jetpull/jetpull/broker/internal/domain"
	"github.com/jetpull/jetpull/broker/internal/work"
	"github.com/jetpull/jetpull/internal/mask"
	"github.com/jetpull/jetpull/internal/service/httpserve"
	"github.com/jetpull/jetpull/internal/service/webhook"
)

// kind has the handlers for one kind of object: producers, channels, consumers or access tokens.
type kind[T any] struct {
	*API
	// segment is the name of the path value that contains the ID.
	segment string
	// inChannel specifies whether objects belong to the channel in the path.
	inChannel bool
	// of holds all objects of the kind.
	of *directory.Kind[T]
	// fill reads the form fields that only this kind has.
	fill func(*http.Request, form, *T) error
	view func(*http.Request, T) any
	// remove deletes an object. Nil means that nothing belongs to the object that could prevent its deletion.
	remove func(*http.Request, T) error
}

func (a *API) producers() kind[domain.Producer] {
	return kind[domain.Producer]{
		API: a, segment: "producer", of: a.Directory.Producers,
		fill: func(_ *http.Request, _ form, p *domain.Producer) error {
			return badField("ID "+strconv.Quote(p.ID), domain.CheckSent(p.ID))
		},
		view: func(_ *http.Request, p domain.Producer) any { return modelOf(p.Stakeholder) },
	}
}

func (a *API) channels() kind[domain.Channel] {
	return kind[domain.Channel]{
		API: a, segment: "channel", of: a.Directory.Channels,
		fill: func(*http.Request, form, *domain.Channel) error { return nil },
		view: func(r *http.Request, c domain.Channel) any {
			url := link(r, "channel", c.ID)
			return channelModel{modelOf(c.Stakeholder), url + "/consumers", url + "/messages", url + "/broadcast", url + "/messages-status"}
		},
		remove: func(r *http.Request, c domain.Channel) error {
			force, err := isTrue(r, "force")
			if err != nil {
				return err
			}
			return a.Directory.DeleteChannel(r.Context(), c, force)
		},
	}
}

func (a *API) consumers() kind[domain.Consumer] {
	return kind[domain.Consumer]{
		API: a, segment: "consumer", inChannel: true, of: a.Directory.Consumers,
		fill: a.fillConsumer,
		view: a.modelOfConsumer,
	}
}

func (a *API) accesses() kind[domain.AccessToken] {
	return kind[domain.AccessToken]{
		API: a, segment: "access", inChannel: true, of: a.Directory.Accesses,
		fill: func(r *http.Request, f form, t *domain.AccessToken) (err error) {
			t.Channel = r.PathValue("channel")
			if f.sets("role") {
				t.Role, err = domain.ParseRole(f.Get("role"))
			}
			return badField("role", err)
		},
		view: func(_ *http.Request, t domain.AccessToken) any { return modelOfAccess(t) },
	}
}

func (k kind[T]) find(r *http.Request) (T, error) {
	channel := ""
	if k.inChannel {
		channel = r.PathValue("channel")
	}
	return k.of.Refresh(r.Context(), channel, r.PathValue(k.segment))
}

func (k kind[T]) write(w http.ResponseWriter, r *http.Request, t T) error {
	w.Header().Set("Last-Modified", lastModified(*k.of.Base(&t)))
	w.Header().Set("ETag", entityTag(*k.of.Base(&t)))
	httpserve.WriteJSON(w, http.StatusOK, k.view(r, t))
	return nil
}

func (k kind[T]) get(w http.ResponseWriter, r *http.Request) error {
	t, err := k.find(r)
	if err != nil {
		return err
	}
	if s := k.of.Base(&t); domain.Hashed(s.Token) || !k.manages(r) { // the request may not see the token
		s.Token = ""
	}
	return k.write(w, r, t)
}

// put creates an object, or changes one that meets the request's precondition. With keep=true, it changes only the given fields. If the token is
// stored as a hash, put shows it for the last time.
func (k kind[T]) put(w http.ResponseWriter, r *http.Request) error {
	keep, err := isTrue(r, "keep")
	if err := cmp.Or(err, checkForm(r)); err != nil {
		return err
	}
	if k.inChannel {
		if _, err := k.channel(r); err != nil {
			return err
		}
	}
	t, err := k.find(r)
	if err == nil || errors.Is(err, domain.ErrNotFound) {
		err = cmp.Or(checkUnmodified(r, *k.of.Base(&t)), err)
	}
	if err != nil && !errors.Is(err, domain.ErrNotFound) {
		return err
	}
	if err := readForm(r); err != nil {
		return err
	}
	f := form{r.PostForm, keep && err == nil}
	if err := fillStakeholder(f, r.PathValue(k.segment), k.of.Base(&t)); err != nil {
		return err
	}
	if err := k.fill(r, f, &t); err != nil {
		return err
	}
	token := k.of.Base(&t).Token
	if t, err = k.of.Put(r.Context(), t); err != nil {
		return preconditioned(err)
	}
	if k.of.Base(&t).Token = token; domain.Hashed(token) { // the stored hash, which was kept
		k.of.Base(&t).Token = ""
	}
	return k.write(w, r, t)
}

func (k kind[T]) link(r *http.Request, t T) string {
	id := k.of.Base(&t).ID
	if k.inChannel {
		return link(r, "channel", r.PathValue("channel"), k.segment, id)
	}
	return link(r, k.segment, id)
}

func (k kind[T]) listAll(r *http.Request) (any, error) {
	if k.inChannel {
		if _, err := k.channel(r); err != nil {
			return nil, err
		}
	}
	page, err := pageOf(r)
	if err != nil {
		return nil, err
	}
	number := func(t T) uint32 { return k.of.Base(&t).Number }
	position := func(t T) domain.Position { return domain.Position{At: int64(number(t))} }
	return listOf(r, paged(k.of.List(r.PathValue("channel")), number, page), k.link, position), nil
}

// delete removes an object that meets the request's precondition. It removes an access token whatever else has changed.
func (k kind[T]) delete(w http.ResponseWriter, r *http.Request) error {
	t, err := k.find(r)
	if err == nil && k.segment != "access" {
		err = checkUnmodified(r, *k.of.Base(&t))
	}
	if err != nil {
		return err
	}
	if k.remove != nil {
		err = k.remove(r, t)
	} else {
		err = k.of.Delete(r.Context(), t)
	}
	if err == nil {
		k.log.Warn("deleted on request", "kind", k.segment, "path", r.URL.EscapedPath(), "by", k.who(r))
	}
	return httpserve.Done(w, http.StatusNoContent, preconditioned(err))
}

func (a *API) channel(r *http.Request) (domain.Channel, error) {
	return a.Directory.Channels.Find(r.Context(), "", r.PathValue("channel"))
}

func (a *API) consumer(r *http.Request) (domain.Consumer, error) {
	return a.Directory.Consumers.Find(r.Context(), r.PathValue("channel"), r.PathValue("consumer"))
}

func (a operators) listAccesses(_ *http.Request, channel domain.Channel) (any, error) {
	models := []accessModel{}
	for _, t := range a.Directory.Accesses.List(channel.ID) {
		t.Token = ""
		models = append(models, modelOfAccess(t))
	}
	return map[string]any{"Result": models}, nil
}

// setPause returns a handler that pauses a consumer with a reason, or resumes it if reason is empty.
func (a operators) setPause(reason string) httpserve.Handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		c, err := a.b.Dispatch.SetPause(r.Context(), r.PathValue("channel"), r.PathValue("consumer"), 0, reason)
		if err != nil {
			return preconditioned(err)
		}
		return a.consumers().write(w, r, c)
	}
}

// isTrue parses a parameter that is true or false.
func isTrue(r *http.Request, name string) (bool, error) {
	switch r.URL.Query().Get(name) {
	case "true":
		return true, nil
	case "", "false":
		return false, nil
	}
	return false, httpserve.BadQuery(r, name, "true or false")
}

// preconditioned converts a conflict in the registry to a failed precondition: another request created or changed the object between the check and
// the write.
func preconditioned(err error) error {
	if errors.Is(err, domain.ErrConflict) {
		return errPrecondition
	}
	return err
}

// badField returns the error that refuses a field because of err. If err is nil, it returns nil.
func badField(name string, err error) error {
	if err == nil {
		return nil
	}
	return httpserve.BadRequest("Bad Request: %s: %v", name, err)
}

// form has the fields of a PUT.
type form struct {
	url.Values
	keeps bool // an omitted field keeps its value
}

// sets reports whether a field gets a value. An omitted field gets its default, unless keeps is set.
func (f form) sets(name string) bool { return !f.keeps || f.Has(name) }

// checkForm checks the content type, before anything else.
func checkForm(r *http.Request) error {
	const encoded = "application/x-www-form-urlencoded"
	given := r.Header.Get("Content-Type")
	media, _, err := mime.ParseMediaType(given)
	if (err != nil && !errors.Is(err, mime.ErrInvalidMediaParameter)) || media != encoded {
		return httpserve.Refuse(http.StatusUnsupportedMediaType, "", "Media type not supported: Content-Type %q: give %s", given, encoded)
	}
	return nil
}

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

// fieldSizes are the limits of the stored form fields, in bytes.
var fieldSizes = map[string]int{
	"name": domain.MaxText, "token": domain.MaxText, "signingSecret": domain.MaxText, "callbackUrl": domain.MaxLongText,
	"eventTypes": domain.MaxLongText, "headers": domain.MaxLongText,
}

func lastModified(s domain.Stakeholder) string { return s.ChangedAt.UTC().Format(http.TimeFormat) }

// entityTag returns a tag that changes with each change of an object, also if the object is deleted and recreated.
func entityTag(s domain.Stakeholder) string { return `"` + strconv.FormatUint(s.Revision, 10) + `"` }

// checkUnmodified checks the precondition of a change to an object: If-Match, or else If-Unmodified-Since. An object that does not exist has the zero
// revision. It matches no entity tag of another, but may be created with an asterisk, or with any time, as in the original.
func checkUnmodified(r *http.Request, s domain.Stakeholder) error {
	if match := r.Header.Values("If-Match"); len(match) > 0 {
		for tag := range strings.SplitSeq(strings.Join(match, ","), ",") {
			if tag = strings.TrimSpace(tag); tag == entityTag(s) || tag == "*" {
				return nil
			}
		}
		return errPrecondition
	}
	switch since := r.Header.Get("If-Unmodified-Since"); {
	case s.Revision == 0, since == lastModified(s):
		return nil
	case since == "":
		return refuse(http.StatusBadRequest, "Bad Request: Update is missing `If-Unmodified-Since` header ")
	default:
		return errPrecondition
	}
}

// fillStakeholder reads name and token. It generates a missing token.
func fillStakeholder(f form, id string, s *domain.Stakeholder) error {
	if err := domain.CheckSize(id, domain.MaxText); err != nil {
		return badField("ID", err)
	}
	s.ID = id
	if f.sets("token") {
		s.Token = cmp.Or(f.Get("token"), domain.NewToken())
		if err := domain.CheckToken(s.Token); err != nil {
			return badField("token", err)
		}
	}
	if f.sets("name") {
		s.Name = cmp.Or(f.Get("name"), id)
	}
	return nil
}

func (a *API) fillConsumer(r *http.Request, f form, c *domain.Consumer) (err error) {
	c.Channel = r.PathValue("channel")
	was, kept := c.CallbackURL, len(c.Headers) > 0 && !f.sets("headers") || c.SigningSecret != "" && !f.sets("signingSecret")
	if f.sets("callbackUrl") {
		c.CallbackURL = f.Get("callbackUrl")
	}
	if err := webhook.CheckURL(c.CallbackURL); err != nil {
		return badField("callbackUrl", err)
	}
	if kept && origin(c.CallbackURL) != origin(was) {
		err := fmt.Errorf("%s is another server: give headers and signingSecret, too, which nobody can read", mask.URL(c.CallbackURL))
		return badField("callbackUrl", err)
	}
	if f.sets("type") {
		if c.Type, err = domain.ParseConsumerType(f.Get("type")); err != nil {
			return badField("type", err)
		}
	}
	if f.sets("concurrency") {
		c.Concurrency = 0
	}
	if s := f.Get("concurrency"); s != "" {
		if c.Concurrency, err = strconv.Atoi(s); err != nil || c.Concurrency < 1 || c.Concurrency > 1<<16 {
			return badField("concurrency", fmt.Errorf("%q: give a whole number from 1 to 65536", s))
		}
	}
	if f.sets("rateLimit") {
		c.RateLimit = 0
	}
	if s := f.Get("rateLimit"); s != "" {
		if c.RateLimit, err = strconv.ParseFloat(s, 64); err != nil || !(c.RateLimit > 0 && c.RateLimit <= 1e6) {
			return badField("rateLimit", fmt.Errorf("%q: give a number of callbacks per second, more than 0 and up to 1000000", s))
		}
	}
	if f.sets("signingSecret") {
		c.SigningSecret = f.Get("signingSecret")
	}
	if c.SigningSecret != "" {
		if _, err := webhook.NewSigner(c.SigningSecret); err != nil {
			return badField("signingSecret", err)
		}
	}
	if f.sets("headers") {
		if c.Headers, err = work.ParseHeaders(f.Get("headers"), a.b.Rules.TokenHeader); err != nil {
			return badField("headers", err)
		}
	}
	if f.sets("eventTypes") {
		c.EventTypes, err = domain.ParseEventTypes(f.Get("eventTypes"))
	}
	return badField("eventTypes", err)
}

// origin returns the scheme and host of a URL.
var origin = regexp.MustCompile(`^[a-zA-Z]+://[^/?#\\]*`).FindString
