//go:build !otlp

package tracing

import (
	"bytes"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"
)

// A build without an exporter says so where the environment asks for one, and works on.
func TestABuildWithoutExporterSaysSo(t *testing.T) {
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318")
	var log bytes.Buffer
	stop, err := Start(t.Context(), "jetpull", slog.New(slog.NewTextHandler(&log, nil)))
	require.NoError(t, err)
	stop(t.Context())
	require.Contains(t, log.String(), "go install -tags otlp")
}
