// Package apidoc checks the OpenAPI documents of broker and relay against the specification.
package apidoc

import (
	"os"
	"testing"

	"github.com/pb33f/libopenapi"
	validator "github.com/pb33f/libopenapi-validator"
)

// problems are what is wrong with a document: with its references, or by the schema of OpenAPI 3.1.
func problems(t *testing.T, source []byte) (all []string) {
	t.Helper()
	document, err := libopenapi.NewDocument(source)
	if err != nil {
		return []string{err.Error()}
	}
	if _, err := document.BuildV3Model(); err != nil {
		all = append(all, err.Error())
	}
	v, errs := validator.NewValidator(document)
	for _, err := range errs {
		all = append(all, err.Error())
	}
	if len(all) > 0 {
		return all
	}
	_, wrong := v.ValidateDocument()
	for _, e := range wrong {
		all = append(all, e.Error())
		for _, schema := range e.SchemaValidationErrors {
			all = append(all, schema.Error())
		}
	}
	return all
}

func TestDocuments(t *testing.T) {
	for _, path := range []string{"../../broker/internal/httpapi/openapi.json", "../../relay/internal/httpapi/openapi.json"} {
		source, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range problems(t, source) {
			t.Errorf("%s: %s", path, p)
		}
	}
}

// The check can fail.
func TestWrongDocuments(t *testing.T) {
	const head = `{"openapi": "3.1.0", "info": {"title": "t", "version": "1"}, `
	for name, source := range map[string]string{
		"no JSON":                  "{",
		"no version":               `{"openapi": "3.1.0", "info": {"title": "t"}, "paths": {}}`,
		"an answer that is not":    head + `"paths": {"/a": {"get": {"responses": {"200": {"$ref": "#/components/responses/None"}}}}}}`,
		"a parameter without a in": head + `"paths": {"/a": {"get": {"parameters": [{"name": "n"}], "responses": {"200": {"description": "d"}}}}}}`,
	} {
		if len(problems(t, []byte(source))) == 0 {
			t.Errorf("%s: nothing is found wrong", name)
		}
	}
}
