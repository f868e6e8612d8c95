package relay

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/internal/service/openapi"
)

func loadDocument(t testing.TB) *openapi.Document {
	t.Helper()
	source, err := os.ReadFile("internal/httpapi/openapi.json")
	require.NoError(t, err)
	d, err := openapi.Parse(source)
	require.NoError(t, err)
	return d
}

func TestRequestsWithoutARoute(t *testing.T) {
	s := startSite(t)
	s.want(404, "GET", "/v1/nothing", adminToken, nil)
	s.want(404, "GET", "/v1//receivers", adminToken, nil)
	s.want(405, "PATCH", "/v1/receivers/x", adminToken, nil)
}
