package openapi

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

const source = `{"paths": {
	"/a/{id}": {
		"get": {"security": [{"token": []}], "responses": {
			"200": {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/A"}}}},
			"204": {},
			"400": {"$ref": "#/components/responses/Wrong"}, "500": {"$ref": "#/components/responses/None"}}},
		"put": {"requestBody": {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/A"}}}}, "responses": {"200": {"content": {"application/x-ndjson": {"schema": {"oneOf": [{"type": "integer"}, {"type": "null"}]}}}}}}},
	"/a/b": {"get": {"responses": {"204": {}}}}},
	"components": {"responses": {"Wrong": {"content": {"text/plain": {"schema": {"type": "string"}}}}},"schemas": {"A": {"type": "object", "required": ["n"], "additionalProperties": false, "properties": {
		"n": {"type": "integer"}, "s": {"type": ["string", "null"], "enum": ["x", "y", null]}, "any": {},
		"list": {"type": "array", "items": {"type": "number"}},
		"map": {"type": "object", "additionalProperties": {"type": "boolean"}}, "free": {"type": "object"}}}}}}`

// Each check can fail.
func TestCheck(t *testing.T) {
	d, err := Parse([]byte(source))
	require.NoError(t, err)
	require.Equal(t, map[string]bool{"GET /a/{id}": true, "PUT /a/{id}": false, "GET /a/b": false}, d.Operations())
	for _, tt := range []struct {
		method, path string
		status       int
		media, body  string
		want         string
	}{
		{"GET", "/a/1?x=y", 200, "application/json", `{"n":1,"s":null,"any":[1],"list":[1.5],"map":{"k":true},"free":{"z":1}}`, ""},
		{"GET", "/a/1", 400, "text/plain; charset=utf-8", "no", ""},
		{"GET", "/a/b", 204, "", "", ""},
		{"GET", "/nowhere", 404, "", "", ""},
		{"GET", "//a/1", 404, "", "", ""},
		{"POST", "/a/1", 405, "", "", ""},
		{"PUT", "/a/1", 200, "application/x-ndjson", "1\nnull\n", ""},
		{"PUT", "/a/1", 200, "application/x-ndjson", "1\ntrue\n", "'oneOf' failed"},
		{"GET", "/nowhere", 200, "", "", "not documented"},
		{"GET", "/a/b", 200, "application/json", "{}", "does not have"},
		{"GET", "/a/1", 500, "text/plain", "no", "does not have"},
		{"GET", "/a/1", 204, "", "x", "the document has no body"},
		{"GET", "/a/1", 200, "text/html", "", "answered with text/html"},
		{"GET", "/a/1", 200, "application/json", "{", "unexpected EOF"},
		{"GET", "/a/1", 200, "application/json", `{}`, "missing property 'n'"},
		{"GET", "/a/1", 200, "application/json", `[]`, "got array, want object"},
		{"GET", "/a/1", 200, "application/json", `{"n":1.5}`, "at '/n': got number, want integer"},
		{"GET", "/a/1", 200, "application/json", `{"n":1,"s":"z"}`, "at '/s': value must be one of"},
		{"GET", "/a/1", 200, "application/json", `{"n":1,"more":1}`, "additional properties 'more' not allowed"},
		{"GET", "/a/1", 200, "application/json", `{"n":1,"list":["x"]}`, "at '/list/0': got string, want number"},
		{"GET", "/a/1", 200, "application/json", `{"n":1,"map":{"k":1}}`, "at '/map/k': got number, want boolean"},
	} {
		err := d.Check(tt.method, tt.path, tt.status, http.Header{"Content-Type": {tt.media}}, []byte(tt.body))
		if tt.want == "" {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, tt.want)
		}
	}
	for _, tt := range []struct{ method, path, body, want string }{
		{"PUT", "/a/1?x=y", `{"n":1}`, ""},
		{"GET", "/a/1", "", ""},
		{"PUT", "/a/1", `{"s":"x"}`, "missing property 'n'"},
		{"PUT", "/a/1", "", "EOF"},
		{"GET", "/a/1", "{}", "the document has no body"},
	} {
		err := d.CheckRequest(tt.method, tt.path, []byte(tt.body))
		if tt.want == "" {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, tt.want)
		}
	}
	_, err = Parse([]byte("["))
	require.ErrorContains(t, err, "the OpenAPI document")
}
