// Package apidoc checks the OpenAPI documents of broker and relay against the specification.
package apidoc

import (
	"os"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
)

// problem returns an error if a document is invalid: its references, or its schemas, parameters and examples.
func problem(t *testing.T, source []byte) error {
	t.Helper()
	document, err := openapi3.NewLoader().LoadFromData(source)
	if err != nil {
		return err
	}
	return document.Validate(t.Context())
}

func TestDocuments(t *testing.T) {
	for _, path := range []string{"../../broker/internal/httpapi/openapi.json", "../../relay/internal/httpapi/openapi.json"} {
		source, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := problem(t, source); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// The check reports invalid documents.
func TestWrongDocuments(t *testing.T) {
	const head = `{"openapi": "3.1.0", "info": {"title": "t", "version": "1"}, `
	for name, source := range map[string]string{
		"no JSON":                  "{",
		"no version":               `{"openapi": "3.1.0", "info": {"title": "t"}, "paths": {}}`,
		"an answer that is not":    head + `"paths": {"/a": {"get": {"responses": {"200": {"$ref": "#/components/responses/None"}}}}}}`,
		"a parameter without a in": head + `"paths": {"/a": {"get": {"parameters": [{"name": "n"}], "responses": {"200": {"description": "d"}}}}}}`,
	} {
		if problem(t, []byte(source)) == nil {
			t.Errorf("%s: nothing is found wrong", name)
		}
	}
}
