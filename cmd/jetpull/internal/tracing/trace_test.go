package tracing

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTraceExporter(t *testing.T) {
	for _, tt := range []struct {
		env    map[string]string
		wanted bool
		err    string
	}{
		{nil, false, ""},
		{map[string]string{"OTEL_SERVICE_NAME": "x"}, false, ""},
		{map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318"}, true, ""},
		{map[string]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://127.0.0.1:4318/v1/traces"}, true, ""},
		{map[string]string{"OTEL_TRACES_EXPORTER": "otlp"}, true, ""},
		{map[string]string{"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}, true, ""},
		{map[string]string{"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318"}, false, ""},
		{map[string]string{"OTEL_SDK_DISABLED": "true", "OTEL_TRACES_EXPORTER": "otlp"}, false, ""},
		{map[string]string{"OTEL_TRACES_EXPORTER": "zipkin"}, false, `OTEL_TRACES_EXPORTER="zipkin"`},
		{map[string]string{"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, false, `OTEL_EXPORTER_OTLP_PROTOCOL="grpc"`},
		{
			map[string]string{"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "grpc", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"},
			false, `OTEL_EXPORTER_OTLP_TRACES_PROTOCOL="grpc"`,
		},
	} {
		wanted, err := traceExporter(func(name string) string { return tt.env[name] })
		require.Equal(t, tt.wanted, wanted, "%v", tt.env)
		if tt.err == "" {
			require.NoError(t, err, "%v", tt.env)
		} else {
			require.ErrorContains(t, err, tt.err, "%v", tt.env)
		}
	}
}
