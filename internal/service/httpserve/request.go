package httpserve

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// ReadBody reads a whole body. It allocates exactly the size of the body if that is known, because payloads stay in memory for a while.
func ReadBody(r *http.Request) (body []byte, err error) {
	if n := r.ContentLength; n >= 0 && n <= 1<<20 {
		body = make([]byte, n)
		_, err = io.ReadFull(r.Body, body)
	} else {
		body, err = io.ReadAll(r.Body)
	}
	return body, ReadError(err)
}

// ReadError returns the error for a body that could not be read: too large, or incomplete.
func ReadError(err error) error {
	if _, tooLarge := errors.AsType[*http.MaxBytesError](err); err == nil || tooLarge {
		return err
	}
	return BadRequest("request body could not be read: %v", err)
}

// ReadJSON reads a body and decodes it with DecodeJSON.
func ReadJSON(r *http.Request, into any) error {
	data, err := ReadBody(r)
	if err != nil {
		return err
	}
	return DecodeJSON(data, into)
}

// DecodeJSON decodes data, which must be one JSON value. It refuses fields that into does not have. It also refuses null, which would decode like an
// object without fields.
func DecodeJSON(data []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	err := d.Decode(&into)
	switch {
	case errors.Is(err, io.EOF):
		return BadRequest("request body is empty: JSON expected")
	case err != nil:
		return BadRequest("request body is not the JSON expected: %s", jsonText(err))
	case into == nil: // null sets the pointer to nil, and does not change its target
		return BadRequest("request body is null: give a JSON object")
	case !utf8.Valid(data):
		return BadRequest("request body is not UTF-8")
	}
	if _, err = d.Token(); !errors.Is(err, io.EOF) {
		return BadRequest("request body is not the JSON expected: more than one JSON value")
	}
	return nil
}

// jsonText returns the text of a JSON error in terms of the contract, not of Go.
func jsonText(err error) string {
	wrong, ok := errors.AsType[*json.UnmarshalTypeError](err)
	if !ok {
		return err.Error()
	}
	text := "give " + jsonKind(wrong.Type) + " in place of the " + wrong.Value
	if wrong.Field != "" {
		text = wrong.Field[strings.LastIndexByte(wrong.Field, '.')+1:] + ": " + text // the names before the last dot may be of Go types
	}
	return text
}

// jsonKind describes the value to send for a field of a type.
func jsonKind(t reflect.Type) string {
	switch t.Kind() {
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Int:
		return "a whole number"
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

// BadQuery returns the error for an invalid parameter. It names the parameter and its value. give describes a valid value.
func BadQuery(r *http.Request, name, give string) error {
	return BadRequest("invalid query parameter: %s %q: give %s", name, r.URL.Query().Get(name), give)
}

// QueryDuration parses a parameter that is a duration such as 20s, or a number of seconds, of at most most. A most of 0 means no limit. It returns 0
// if there is no parameter.
func QueryDuration(r *http.Request, name string, most time.Duration) (time.Duration, error) {
	s := r.URL.Query().Get(name)
	if s == "" {
		return 0, nil
	}
	if strings.Trim(s, "0123456789") == "" {
		s += "s"
	}
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 {
		return 0, BadQuery(r, name, "a time such as 20s, or a whole number of seconds, 0 or more")
	}
	if most > 0 && d > most {
		return 0, BadQuery(r, name, fmt.Sprintf("%.0f seconds at most", most.Seconds()))
	}
	return d, nil
}

// checkQuery refuses a query that cannot be parsed, because package url would drop a part of it. It also refuses an unknown parameter, because a
// misspelled one would have no effect.
func checkQuery(r *http.Request, route Route) error {
	if r.URL.RawQuery == "" || route.AnyQuery {
		return nil
	}
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return BadRequest("invalid query %q: %v: separate parameters by &, and write other characters percent-encoded", r.URL.RawQuery, err)
	}
	for name, values := range query {
		if slices.Contains(route.Query, name) {
			continue
		}
		give := "none, this route has no parameters"
		if len(route.Query) > 0 {
			give = "one of " + strings.Join(route.Query, ", ")
		}
		return BadRequest("invalid query parameter: %q with value %q is not known: give %s", name, values[0], give)
	}
	return nil
}
