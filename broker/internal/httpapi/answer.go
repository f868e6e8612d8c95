package httpapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strings"

	"github.com/jetpull/jetpull/broker/internal/domain"
	"github.com/jetpull/jetpull/internal/service/httpserve"
)

// Texts of the contract.
const (
	textNotFound           = "Request resource not found"
	textUnsupportedMedia   = "Media type not supported"
	textNoCondition        = "Bad Request: Update is missing `If-Unmodified-Since` header "
	textPreconditionFailed = "Precondition Failed"
	textChannelToken       = "channel token does not match"
	textConsumerToken      = "consumer token does not match"
	textProducerToken      = "producer token does not match"
	textNoProducer         = "producer could not be found"
	textNoConsumer         = "consumer could not be found"
	textNoJob              = "job could not be found"
	textNotPull            = "consumer not pull based"
	textQueryParameter     = "invalid query parameter"
	textRequeueToken       = "`requeue` form param must match consumer token"
	textScheduleFormat     = "invalid date format for X-Broker-Scheduled-For, expected ISO-8601/RFC3339 format"
	textInternal           = "internal error"
)

// httpError is an answer that is no success.
type httpError struct {
	code int
	text string
}

func (e *httpError) Error() string { return fmt.Sprintf("%d %s", e.code, e.text) }

var errNotFound = &httpError{http.StatusNotFound, textNotFound}

// answers maps the errors of the domain, first match first. An empty text means
// the error's own.
var answers = []struct {
	err  error
	code int
	text string
}{
	{httpserve.ErrNoRoute, http.StatusNotFound, textNotFound},
	{domain.ErrDuplicateMessage, http.StatusConflict, ""},
	{domain.ErrDuplicateScheduled, http.StatusConflict, ""},
	{domain.ErrClaimLost, http.StatusConflict, ""},
	{domain.ErrConflict, http.StatusConflict, ""},
	{domain.ErrRetriesLeft, http.StatusNotFound, ""},
	{domain.ErrInvalidTransition, http.StatusBadRequest, ""},
	{domain.ErrTimeoutWithInvalidState, http.StatusBadRequest, ""},
	{domain.ErrInvalid, http.StatusBadRequest, ""},
	{domain.ErrTooLarge, http.StatusRequestEntityTooLarge, ""},
	{domain.ErrNotFound, http.StatusNotFound, textNotFound},
	{domain.ErrStoreFull, http.StatusServiceUnavailable, "the store is full: work jobs off or try again later"},
	{domain.ErrUnavailable, http.StatusServiceUnavailable, "the store is not available, try again"},
}

// describe finds the code and text of an error. What is not expected is not
// told to a client.
func describe(err error) (code int, text string) {
	if e, ok := errors.AsType[*httpError](err); ok {
		return e.code, e.text
	}
	if e, ok := errors.AsType[*httpserve.LoginsError](err); ok {
		return http.StatusTooManyRequests, e.Error()
	}
	if e, ok := errors.AsType[*httpserve.ForbiddenError](err); ok {
		return http.StatusForbidden, e.Error()
	}
	if e, ok := errors.AsType[*httpserve.PathError](err); ok {
		return http.StatusBadRequest, "Bad Request: " + e.Error()
	}
	if _, ok := errors.AsType[*httpserve.MethodError](err); ok {
		return http.StatusMethodNotAllowed, "Method Not Allowed"
	}
	if e, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return http.StatusRequestEntityTooLarge, fmt.Sprintf("request body is larger than %d bytes", e.Limit)
	}
	for _, a := range answers {
		if errors.Is(err, a.err) {
			if a.text == "" {
				return a.code, err.Error()
			}
			return a.code, a.text
		}
	}
	return http.StatusInternalServerError, textInternal
}

func failure(err error) httpserve.Failure {
	code, text := describe(err)
	return textFailure(code, text)
}

func textFailure(code int, text string) httpserve.Failure {
	return httpserve.Failure{Status: code, ContentType: "text/plain; charset=utf-8", Body: []byte(text)}
}

func writeJSON(w http.ResponseWriter, value any) { httpserve.WriteJSON(w, http.StatusOK, value) }

// readExactJSON reads a body that must be one JSON value. It refuses fields that it
// does not know, and null, which would be taken for an object without fields.
func readExactJSON(r *http.Request, into any) error {
	d := json.NewDecoder(r.Body)
	d.DisallowUnknownFields()
	if err := decodeJSON(d, &into); err != nil {
		return err
	}
	if into == nil { // null leaves what into points to, and takes the pointer away
		return &httpError{http.StatusBadRequest, "request body is null: give a JSON object"}
	}
	return nil
}

func decodeJSON(d *json.Decoder, into any) error {
	err := d.Decode(into)
	if err == nil {
		if _, more := d.Token(); !errors.Is(more, io.EOF) {
			err = errors.New("more than one JSON value")
			if tooLarge, ok := errors.AsType[*http.MaxBytesError](more); ok {
				err = tooLarge
			}
		}
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, io.EOF):
		return &httpError{http.StatusBadRequest, "request body is empty: JSON expected"}
	}
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return err
	}
	text := err.Error()
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		text = "give " + jsonKind(wrong.Type) + " in place of the " + wrong.Value
		if wrong.Field != "" {
			text = wrong.Field[strings.LastIndexByte(wrong.Field, '.')+1:] + ": " + text // the names before it may be of Go's types
		}
	}
	return &httpError{http.StatusBadRequest, "request body is not the JSON expected: " + text}
}

// jsonKind is what is to be sent for a field of a type.
func jsonKind(t reflect.Type) string {
	switch t.Kind() {
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Uint32:
		return "a whole number of 0 or more"
	case reflect.Float64:
		return "a number"
	case reflect.Slice:
		return "an array"
	default:
		return "an object"
	}
}

// Starting answers for a broker that has not started yet: it is alive, and 503 says of all else why it cannot serve. It looks at no
// token, so that reason is for everybody.
func Starting(reason func() string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet && r.URL.Path == "/healthz" {
			writeJSON(w, map[string]string{"status": "ok"})
			return
		}
		textFailure(http.StatusServiceUnavailable, reason()).Write(w)
	})
}
