package httpapi

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/internal/service/httpserve"
	"github.com/jetpull/jetpull/internal/service/openapi"
)

// The document and the routes have the same operations, with the same tokens.
func TestDocumentHasTheRoutes(t *testing.T) {
	doc, err := openapi.Parse(openAPI)
	require.NoError(t, err)
	served := map[string]bool{}
	for _, r := range append((&API{}).routes(), httpserve.Common(admin, nil, openAPI, (&API{}).ready)...) {
		served[r.Method+" "+r.Pattern] = r.Access != open
	}
	require.Equal(t, served, doc.Operations())
}
