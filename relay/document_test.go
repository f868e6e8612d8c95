package relay

import (
	"os"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/internal/service/openapi"
)

// document is parsed once. Every answer of every test is checked against it.
var document = sync.OnceValues(func() (*openapi.Document, error) {
	source, err := os.ReadFile("internal/httpapi/openapi.json")
	if err != nil {
		return nil, err
	}
	return openapi.Parse(source)
})

func loadDocument(t testing.TB) *openapi.Document {
	t.Helper()
	d, err := document()
	require.NoError(t, err)
	return d
}

func TestRequestsWithoutARoute(t *testing.T) {
	t.Parallel()
	s := startSite(t)
	s.want(404, "GET", "/v1/nothing", adminToken, nil)
	s.want(404, "GET", "/v1//receivers", adminToken, nil)
	s.want(405, "POST", "/v1/receivers/x", adminToken, nil)
}
