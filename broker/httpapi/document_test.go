package httpapi_test

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
	Type                 any               `json:"type"`
	Properties           map[string]schema `json:"properties"`
	AdditionalProperties json.RawMessage   `json:"additionalProperties"`
	Required             []string          `json:"required"`
	Items                *schema           `json:"items"`
	Enum                 []string          `json:"enum"`
}

type document struct {
	Paths map[string]map[string]struct {
		Responses map[string]struct {
			Content map[string]struct{ Schema schema }
		}
	}
	Components struct{ Schemas map[string]schema }
	patterns   map[string]*regexp.Regexp
}

func loadDocument(t testing.TB) *document {
	t.Helper()
	b, err := os.ReadFile("openapi.json")
	require.NoError(t, err)
	d := &document{patterns: map[string]*regexp.Regexp{}}
	require.NoError(t, json.Unmarshal(b, d))
	variable := regexp.MustCompile(`\{\w+\}`)
	for path := range d.Paths {
		d.patterns[path] = regexp.MustCompile("^" + variable.ReplaceAllString(path, `[^/]+`) + "$")
	}
	return d
}

// path finds the documented path of a request; the one without variables wins.
func (d *document) path(escaped string) string {
	best := ""
	for path, pattern := range d.patterns {
		if pattern.MatchString(escaped) && (best == "" || strings.Count(path, "{") < strings.Count(best, "{")) {
			best = path
		}
	}
	return best
}

// check holds an answer against the document.
func (d *document) check(t testing.TB, method, path string, status int, header http.Header, body string) {
	t.Helper()
	operation, ok := d.Paths[d.path(path)][strings.ToLower(method)]
	if !ok {
		require.Contains(t, []int{http.StatusNotFound, http.StatusMethodNotAllowed}, status, "%s %s is not documented", method, path)
		return
	}
	response, ok := operation.Responses[fmt.Sprint(status)]
	require.True(t, ok, "%s %s answered %d %q, which the document does not have", method, path, status, body)
	if len(response.Content) == 0 {
		require.Empty(t, body)
		return
	}
	media, _, _ := strings.Cut(header.Get("Content-Type"), ";")
	content, ok := response.Content[media]
	require.True(t, ok, "%s %s answered with %s", method, path, media)
	if media == "application/json" {
		var value any
		require.NoError(t, json.Unmarshal([]byte(body), &value))
		require.NoError(t, d.valid(content.Schema, value, "answer"), "%s %s: %s", method, path, body)
	} else if status >= 400 {
		require.False(t, strings.HasSuffix(body, "\n"), "an error ends with a newline")
	}
}

func (d *document) valid(s schema, value any, where string) error {
	if s.Ref != "" {
		s = d.Components.Schemas[strings.TrimPrefix(s.Ref, "#/components/schemas/")]
	}
	if err := validType(s, value, where); err != nil {
		return err
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

func validType(s schema, value any, where string) error {
	var allowed []string
	switch t := s.Type.(type) {
	case string:
		allowed = []string{t}
	case []any:
		for _, one := range t {
			allowed = append(allowed, fmt.Sprint(one))
		}
	}
	got := map[string]string{"string": "string", "float64": "number", "bool": "boolean", "<nil>": "null", "[]interface {}": "array", "map[string]interface {}": "object"}[fmt.Sprintf("%T", value)]
	if n, ok := value.(float64); ok && n == float64(int64(n)) && slices.Contains(allowed, "integer") {
		return nil
	}
	if !slices.Contains(allowed, got) {
		return fmt.Errorf("%s is %s, the document says %v", where, got, allowed)
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
			switch string(s.AdditionalProperties) {
			case "false":
				return fmt.Errorf("%s has %s, which the document does not", where, name)
			case "":
				continue
			}
			if err := json.Unmarshal(s.AdditionalProperties, &property); err != nil {
				return err
			}
		}
		if err := d.valid(property, value, where+"."+name); err != nil {
			return err
		}
	}
	return nil
}
