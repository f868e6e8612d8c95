// Package openapi checks the requests and responses of a server against its OpenAPI document. It is for tests.
package openapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// body is the body of a request or response, or a reference to a component.
type body struct {
	Ref     string                     `json:"$ref"`
	Content map[string]json.RawMessage // the definitions by media type
}

// Document is an OpenAPI document, version 3.1, whose schemas are JSON Schema. It is safe for concurrent use.
type Document struct {
	Paths map[string]map[string]struct {
		Security    []map[string][]string
		RequestBody body
		Responses   map[string]body
	}
	Components struct{ Responses map[string]body }

	routes *http.ServeMux // has the documented operations

	mu      sync.Mutex // guards schemas
	schemas *jsonschema.Compiler
}

// name is the name of the document in the schema compiler.
const name = "openapi.json"

// Parse parses a document.
func Parse(source []byte) (*Document, error) {
	d := &Document{routes: http.NewServeMux(), schemas: jsonschema.NewCompiler()}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(source))
	if err == nil {
		err = json.Unmarshal(source, d)
	}
	if err == nil {
		err = d.schemas.AddResource(name, value)
	}
	if err != nil {
		return nil, fmt.Errorf("the OpenAPI document: %w", err)
	}
	for operation := range d.Operations() {
		d.routes.Handle(operation, http.NotFoundHandler())
	}
	return d, nil
}

// Operations returns the documented routes, such as GET /channel/{channel}, and whether each needs a token.
func (d *Document) Operations() map[string]bool {
	all := map[string]bool{}
	for path, methods := range d.Paths {
		for method, operation := range methods {
			all[strings.ToUpper(method)+" "+path] = len(operation.Security) > 0
		}
	}
	return all
}

// path returns the path of the documented operation that matches a request, or "".
func (d *Document) path(method, request string) string {
	target, err := url.Parse(request)
	if err != nil || target.EscapedPath() != path.Clean(target.EscapedPath()) { // ServeMux would match the clean path
		return ""
	}
	_, operation := d.routes.Handler(&http.Request{Method: method, URL: target})
	return strings.TrimPrefix(operation, method+" ")
}

// Check checks a response against the document. path may have a query.
func (d *Document) Check(method, path string, status int, header http.Header, data []byte) error {
	route, code := d.path(method, path), strconv.Itoa(status)
	operation, ok := d.Paths[route][strings.ToLower(method)]
	if !ok {
		if status != http.StatusNotFound && status != http.StatusMethodNotAllowed {
			return fmt.Errorf("%s %s answered %d and is not documented", method, path, status)
		}
		return nil
	}
	at := []string{"paths", route, strings.ToLower(method), "responses", code}
	answer, ok := operation.Responses[code]
	if shared, is := strings.CutPrefix(answer.Ref, "#/components/responses/"); is {
		at = []string{"components", "responses", shared}
		answer, ok = d.Components.Responses[shared]
	}
	if !ok {
		return fmt.Errorf("%s %s answered %d %q, which the document does not have", method, path, status, data)
	}
	media, _, _ := strings.Cut(header.Get("Content-Type"), ";")
	if _, ok := answer.Content[media]; !ok && len(answer.Content) > 0 {
		return fmt.Errorf("%s %s answered with %s, which the document does not have", method, path, media)
	}
	if err := d.check(answer, at, media, data); err != nil {
		return fmt.Errorf("%s %s answered %q: %w", method, path, data, err)
	}
	return nil
}

// CheckRequest checks the body of a request that a server accepted against the document. path may have a query.
func (d *Document) CheckRequest(method, path string, data []byte) error {
	route := d.path(method, path)
	request := d.Paths[route][strings.ToLower(method)].RequestBody
	media := ""
	for media = range request.Content {
		break
	}
	if err := d.check(request, []string{"paths", route, strings.ToLower(method), "requestBody"}, media, data); err != nil {
		return fmt.Errorf("%s %s took %q: %w", method, path, data, err)
	}
	return nil
}

// check checks a JSON value, or one per line, against the schema of the body at a place in the document. It accepts any other media type.
func (d *Document) check(b body, at []string, media string, data []byte) error {
	var values []string
	switch {
	case len(b.Content) == 0 && len(data) > 0:
		return fmt.Errorf("the document has no body")
	case media == "application/json":
		values = []string{string(data)}
	case media == "application/x-ndjson":
		values = slices.Collect(strings.Lines(string(data)))
	}
	for _, text := range values {
		pointer := ""
		for _, part := range append(at, "content", media, "schema") {
			pointer += "/" + strings.NewReplacer("~", "~0", "/", "~1", "{", "%7B", "}", "%7D").Replace(part)
		}
		d.mu.Lock()
		schema, err := d.schemas.Compile(name + "#" + pointer)
		d.mu.Unlock()
		if err != nil {
			return err
		}
		value, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
		if err != nil {
			return err
		}
		if err := schema.Validate(value); err != nil {
			return err
		}
	}
	return nil
}
