// Package tracing exports the spans of a process as configured by the OTEL environment variables.
package tracing

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"

	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
)

// Help is what the help of a command says of it.
const Help = `Traces are exported by OTLP over HTTP if OpenTelemetry's environment variables ask
for it: OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_TRACES_EXPORTER, OTEL_TRACES_SAMPLER,
OTEL_SERVICE_NAME and so on.`

// traceFlush bounds the export of the last spans at the end.
const traceFlush = 5 * time.Second

// Start exports the spans of this process as the environment wants it,
// and nothing where it wants nothing. The returned function exports the rest.
func Start(ctx context.Context, service string, log *slog.Logger) (stop func(context.Context), err error) {
	wanted, err := traceExporter(os.Getenv)
	if err != nil || !wanted {
		return func(context.Context) {}, err
	}
	c, err := newCollector(os.Getenv)
	if err != nil {
		return nil, cli.Usage(err)
	}
	exporter, err := otlptrace.New(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("export of traces: %w", err)
	}
	// The environment comes last, so that it overrides the name.
	about, err := resource.New(ctx, resource.WithTelemetrySDK(), resource.WithAttributes(semconv.ServiceName(service)), resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("export of traces: OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { log.Warn("traces", "error", err) }))
	provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithResource(about))
	otel.SetTracerProvider(provider)
	return func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, traceFlush)
		defer cancel()
		if err := provider.Shutdown(ctx); err != nil {
			log.Warn("the last spans were not exported", "error", err)
		}
	}, nil
}

// traceExporter reads whether spans are to be exported. An exporter that this program
// does not have is refused, because missing spans would be noticed too late.
func traceExporter(getenv environment) (wanted bool, err error) {
	_, endpoint := getenv.lookup("ENDPOINT", "")
	exporter := getenv("OTEL_TRACES_EXPORTER")
	switch {
	case getenv("OTEL_SDK_DISABLED") == "true", exporter == "none", exporter == "" && endpoint == "":
		return false, nil
	case exporter != "" && exporter != "otlp":
		return false, cli.Usage(fmt.Errorf("OTEL_TRACES_EXPORTER=%q: traces are exported by otlp only, or none", exporter))
	}
	if name, protocol := getenv.lookup("PROTOCOL", "http/protobuf"); protocol != "http/protobuf" {
		return false, cli.Usage(fmt.Errorf("%s=%q: only http/protobuf is supported; collectors take it on port 4318 by default", name, protocol))
	}
	return true, nil
}

// environment reads OpenTelemetry's variables of the exporter. A variable for traces goes before the one for all signals.
type environment func(name string) string

// lookup returns the variable that has a value. If none has, that is the one for all signals, with the default.
func (getenv environment) lookup(name, byDefault string) (variable, value string) {
	for _, variable = range []string{"OTEL_EXPORTER_OTLP_TRACES_" + name, "OTEL_EXPORTER_OTLP_" + name} {
		if value = strings.TrimSpace(getenv(variable)); value != "" {
			return variable, value
		}
	}
	return variable, byDefault
}
