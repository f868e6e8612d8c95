// Package openapi holds what a server is asked and answers against its OpenAPI document. It is for tests.
package openapi

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
)

// schema is the part of JSON Schema that the documents use.
type schema struct {
	Ref                  string            `json:"$ref"`
	Type                 any               `json:"type"` // a name, or several
	Properties           map[string]schema `json:"properties"`
	AdditionalProperties json.RawMessage   `json:"additionalProperties"`
	Required             []string          `json:"required"`
	Items                *schema           `json:"items"`
	Enum                 []string          `json:"enum"`
	OneOf                []schema          `json:"oneOf"`
}

// content is a body's schema by media type.
type content map[string]struct{ Schema schema }

// response is an answer, or the name of one of the components.
type response struct {
	Ref     string `json:"$ref"`
	Content content
}

// Document is an OpenAPI document.
type Document struct {
	Paths map[string]map[string]struct {
		Security    []map[string][]string
		RequestBody struct{ Content content }
		Responses   map[string]response
	}
	Components struct {
		Schemas   map[string]schema
		Responses map[string]response
	}

	patterns map[string]*regexp.Regexp
}

var variable = regexp.MustCompile(`\{\w+\}`)

// Parse reads a document.
func Parse(source []byte) (*Document, error) {
	d := &Document{patterns: map[string]*regexp.Regexp{}}
	if err := json.Unmarshal(source, d); err != nil {
		return nil, fmt.Errorf("the OpenAPI document: %w", err)
	}
	for path, methods := range d.Paths {
		for _, operation := range methods {
			for status, answer := range operation.Responses {
				if answer.Ref == "" {
					continue
				}
				shared, ok := d.Components.Responses[strings.TrimPrefix(answer.Ref, "#/components/responses/")]
				if !ok {
					return nil, fmt.Errorf("the OpenAPI document: %s: %s refers to %s, which it does not have", path, status, answer.Ref)
				}
				operation.Responses[status] = shared
			}
		}
		d.patterns[path] = regexp.MustCompile("^" + variable.ReplaceAllString(path, `[^/]+`) + "$")
	}
	return d, nil
}

// Operations are the documented routes, such as GET /channel/{channel}, and whether each needs a token.
func (d *Document) Operations() map[string]bool {
	all := map[string]bool{}
	for path, methods := range d.Paths {
		for method, operation := range methods {
			all[strings.ToUpper(method)+" "+path] = len(operation.Security) > 0
		}
	}
	return all
}

// path finds the documented path of a request; the one with fewer variables wins.
func (d *Document) path(escaped string) string {
	best := ""
	for path, pattern := range d.patterns {
		if pattern.MatchString(escaped) && (best == "" || strings.Count(path, "{") < strings.Count(best, "{")) {
			best = path
		}
	}
	return best
}

// Check holds an answer against the document. The path may have a query.
func (d *Document) Check(method, path string, status int, header http.Header, body []byte) error {
	path, _, _ = strings.Cut(path, "?")
	operation, ok := d.Paths[d.path(path)][strings.ToLower(method)]
	if !ok {
		if status != http.StatusNotFound && status != http.StatusMethodNotAllowed {
			return fmt.Errorf("%s %s answered %d and is not documented", method, path, status)
		}
		return nil
	}
	response, ok := operation.Responses[fmt.Sprint(status)]
	if !ok {
		return fmt.Errorf("%s %s answered %d %q, which the document does not have", method, path, status, body)
	}
	if len(response.Content) == 0 {
		if len(body) > 0 {
			return fmt.Errorf("%s %s answered %q, and the document has no body", method, path, body)
		}
		return nil
	}
	media, _, _ := strings.Cut(header.Get("Content-Type"), ";")
	content, ok := response.Content[media]
	if !ok {
		return fmt.Errorf("%s %s answered with %s, which the document does not have", method, path, media)
	}
	if err := d.validBody(media, content.Schema, body, "answer"); err != nil {
		return fmt.Errorf("%s %s answered %q: %w", method, path, body, err)
	}
	return nil
}

// CheckRequest holds the body of a request that a server took against the document. The path may have a query.
func (d *Document) CheckRequest(method, path string, body []byte) error {
	path, _, _ = strings.Cut(path, "?")
	operation := d.Paths[d.path(path)][strings.ToLower(method)]
	if len(operation.RequestBody.Content) == 0 {
		if len(body) > 0 {
			return fmt.Errorf("%s %s took %q, and the document has no body", method, path, body)
		}
		return nil
	}
	for media, content := range operation.RequestBody.Content {
		if err := d.validBody(media, content.Schema, body, "request"); err != nil {
			return fmt.Errorf("%s %s took %q: %w", method, path, body, err)
		}
	}
	return nil
}

// validBody checks a JSON value, or one on each line. Other media can be anything.
func (d *Document) validBody(media string, s schema, body []byte, where string) error {
	var values []string
	switch media {
	case "application/json":
		values = []string{string(body)}
	case "application/x-ndjson":
		values = slices.Collect(strings.Lines(string(body)))
	}
	for _, text := range values {
		var value any
		if err := json.Unmarshal([]byte(text), &value); err != nil {
			return err
		}
		if err := d.valid(s, value, where); err != nil {
			return err
		}
	}
	return nil
}

func (d *Document) valid(s schema, value any, where string) error {
	if s.Ref != "" {
		s = d.Components.Schemas[strings.TrimPrefix(s.Ref, "#/components/schemas/")]
	}
	if len(s.OneOf) > 0 {
		for _, one := range s.OneOf {
			if d.valid(one, value, where) == nil {
				return nil
			}
		}
		return fmt.Errorf("%s is none of what the document has", where)
	}
	if err := validType(s, value, where); err != nil {
		return err
	}
	switch v := value.(type) {
	case map[string]any:
		return d.validObject(s, v, where)
	case []any:
		for i, item := range v {
			if s.Items == nil {
				break
			}
			if err := d.valid(*s.Items, item, fmt.Sprintf("%s[%d]", where, i)); err != nil {
				return err
			}
		}
	case string:
		if len(s.Enum) > 0 && !slices.Contains(s.Enum, v) {
			return fmt.Errorf("%s is %q, not one of %v", where, v, s.Enum)
		}
	}
	return nil
}

func validType(s schema, value any, where string) error {
	var allowed []string
	switch t := s.Type.(type) {
	case nil:
		return nil // anything
	case string:
		allowed = []string{t}
	case []any:
		for _, one := range t {
			allowed = append(allowed, fmt.Sprint(one))
		}
	}
	got := ""
	switch v := value.(type) {
	case nil:
		got = "null"
	case string:
		got = "string"
	case bool:
		got = "boolean"
	case []any:
		got = "array"
	case map[string]any:
		got = "object"
	case float64:
		got = "number"
		if v == float64(int64(v)) && slices.Contains(allowed, "integer") {
			return nil
		}
	}
	if !slices.Contains(allowed, got) {
		return fmt.Errorf("%s is %s, the document says %v", where, got, allowed)
	}
	return nil
}

func (d *Document) validObject(s schema, object map[string]any, where string) error {
	for _, name := range s.Required {
		if _, ok := object[name]; !ok {
			return fmt.Errorf("%s has no %s", where, name)
		}
	}
	for name, value := range object {
		property, ok := s.Properties[name]
		if !ok {
			switch string(s.AdditionalProperties) {
			case "false":
				return fmt.Errorf("%s has %s, which the document does not", where, name)
			case "", "true":
				continue
			}
			if err := json.Unmarshal(s.AdditionalProperties, &property); err != nil {
				return fmt.Errorf("the document's additionalProperties of %s: %w", where, err)
			}
		}
		if err := d.valid(property, value, where+"."+name); err != nil {
			return err
		}
	}
	return nil
}
