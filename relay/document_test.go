package relay

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// schema is the part of JSON Schema that the document uses.
type schema struct {
	Ref                  string            `json:"$ref"`
	Type                 string            `json:"type"`
	Properties           map[string]schema `json:"properties"`
	AdditionalProperties json.RawMessage   `json:"additionalProperties"`
	Required             []string          `json:"required"`
	Items                *schema           `json:"items"`
	Enum                 []string          `json:"enum"`
	OneOf                []schema          `json:"oneOf"`
}

type document struct {
	Paths map[string]map[string]struct {
		Responses map[string]struct {
			Content map[string]struct{ Schema schema }
		}
	}
	Components struct{ Schemas map[string]schema }
}

func loadDocument(t testing.TB) *document {
	t.Helper()
	b, err := os.ReadFile("internal/httpapi/openapi.json")
	require.NoError(t, err)
	d := &document{}
	require.NoError(t, json.Unmarshal(b, d))
	return d
}

var variable = regexp.MustCompile(`\{\w+\}`)

// check holds an answer against the document.
func (d *document) check(t testing.TB, method, path string, status int, header http.Header, body []byte) {
	t.Helper()
	path, _, _ = strings.Cut(path, "?")
	for documented, operations := range d.Paths {
		if !regexp.MustCompile("^" + variable.ReplaceAllString(documented, `[^/]+`) + "$").MatchString(path) {
			continue
		}
		operation, ok := operations[strings.ToLower(method)]
		if !ok {
			require.Equal(t, http.StatusMethodNotAllowed, status, "%s %s", method, path)
			return
		}
		response, ok := operation.Responses[fmt.Sprint(status)]
		require.True(t, ok, "%s %s answered %d %q, which the document does not have", method, path, status, body)
		media, _, _ := strings.Cut(header.Get("Content-Type"), ";")
		if len(response.Content) == 0 {
			require.Empty(t, body)
			return
		}
		content, ok := response.Content[media]
		require.True(t, ok, "%s %s answered with %s", method, path, media)
		if media == "text/plain" {
			return
		}
		values := []string{string(body)}
		if media == "application/x-ndjson" {
			values = slices.Collect(strings.Lines(string(body)))
		}
		for _, text := range values {
			var value any
			require.NoError(t, json.Unmarshal([]byte(text), &value))
			require.NoError(t, d.valid(content.Schema, value, "answer"), "%s %s: %s", method, path, body)
		}
		return
	}
	require.Equal(t, http.StatusNotFound, status, "%s %s is not documented", method, path)
}

func (d *document) valid(s schema, value any, where string) error {
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
	if s.Type == "" {
		return nil
	}
	got := map[string]string{"string": "string", "float64": "number", "bool": "boolean", "<nil>": "null", "[]interface {}": "array", "map[string]interface {}": "object"}[fmt.Sprintf("%T", value)]
	if n, ok := value.(float64); ok && s.Type == "integer" && n == float64(int64(n)) {
		got = "integer"
	}
	if got != s.Type {
		return fmt.Errorf("%s is %s, the document says %s", where, got, s.Type)
	}
	switch v := value.(type) {
	case map[string]any:
		return d.validObject(s, v, where)
	case []any:
		for i, item := range v {
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

func (d *document) validObject(s schema, object map[string]any, where string) error {
	for _, name := range s.Required {
		if _, ok := object[name]; !ok {
			return fmt.Errorf("%s has no %s", where, name)
		}
	}
	for name, value := range object {
		property, ok := s.Properties[name]
		if !ok {
			if string(s.AdditionalProperties) == "false" {
				return fmt.Errorf("%s has %s, which the document does not", where, name)
			}
			continue
		}
		if err := d.valid(property, value, where+"."+name); err != nil {
			return err
		}
	}
	return nil
}

// What is served is what is documented, both ways: no operation of the document answers 404 or 405 for want of a route.
func TestDocumentedRoutesAreServed(t *testing.T) {
	s := startSite(t)
	d := loadDocument(t)
	operations := 0
	for path, methods := range d.Paths {
		for method := range methods {
			operations++
			code, body := s.call(strings.ToUpper(method), variable.ReplaceAllString(path, "x"), adminToken, nil)
			require.NotEqual(t, http.StatusMethodNotAllowed, code, "%s %s", method, path)
			require.NotContains(t, string(body), "no such route", "%s %s", method, path)
		}
	}
	require.Equal(t, 22, operations)
	s.want(404, "GET", "/v1/nothing", adminToken, nil)
	s.want(405, "PATCH", "/v1/receivers/x", adminToken, nil)
}
