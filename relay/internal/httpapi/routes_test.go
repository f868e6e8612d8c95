package httpapi

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/internal/service/httpserve"
	"github.com/jetpull/jetpull/internal/service/openapi"
)

// The document and the routes have the same operations, with the same tokens. A wrong token gets 401, or 429 after too many.
func TestDocumentHasTheRoutes(t *testing.T) {
	doc, err := openapi.Parse(openAPI)
	require.NoError(t, err)
	served := map[string]bool{}
	for _, r := range append((&API{}).routes(), httpserve.Common(admin, nil, openAPI, (&API{}).ready)...) {
		served[r.Method+" "+r.Pattern] = r.Access != open
	}
	require.Equal(t, served, doc.Operations())
	for path, methods := range doc.Paths {
		for method, operation := range methods {
			if len(operation.Security) > 0 {
				require.Contains(t, operation.Responses, "401", "%s %s", method, path)
				require.Contains(t, operation.Responses, "429", "%s %s", method, path)
			}
		}
	}
}
