// Package tracing exports the spans of a process as configured by the OTEL environment variables.
package tracing

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr/funcr"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"

	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
)

// Help is what the help of a command says of it.
const Help = `Traces are exported by OTLP over HTTP if OpenTelemetry's environment variables ask
for it: OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_TRACES_EXPORTER, OTEL_TRACES_SAMPLER,
OTEL_SERVICE_NAME and so on. The exporter depends on gRPC, so only a build with
the tag otlp has it:
go install -tags otlp github.com/jetpull/jetpull/cmd/jetpull@latest`

// errNoExporter says that this build exports no traces.
var errNoExporter = errors.New("this build has no exporter; install one with: go install -tags otlp github.com/jetpull/jetpull/cmd/jetpull@latest")

// traceFlush bounds the export of the last spans at the end.
const traceFlush = 5 * time.Second

// Start exports the spans of this process as the environment wants it,
// and nothing where it wants nothing. The returned function exports the rest.
func Start(ctx context.Context, service string, log *slog.Logger) (stop func(context.Context), err error) {
	wanted, err := traceExporter(os.Getenv)
	if err != nil || !wanted {
		return func(context.Context) {}, err
	}
	// The exporter would print a variable that it cannot read, secrets and all, and go on without it.
	var misread atomic.Bool
	otel.SetLogger(funcr.New(func(string, string) { misread.Store(true) }, funcr.Options{}))
	exporter, err := newExporter(ctx)
	if errors.Is(err, errNoExporter) {
		log.Warn("the environment asks for traces, and none are exported", "error", err)
		return func(context.Context) {}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("export of traces: %w", err)
	}
	if misread.Load() {
		return nil, cli.Usage(errors.New("a variable OTEL_EXPORTER_OTLP_… cannot be read: headers are name=value with commas between, where a percent sign begins an encoded byte; an endpoint is a URL such as http://127.0.0.1:4318"))
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
func traceExporter(getenv func(string) string) (wanted bool, err error) {
	first := func(names ...string) (name, value string) {
		for _, name := range names {
			if value := getenv(name); value != "" {
				return name, value
			}
		}
		return names[0], ""
	}
	if getenv("OTEL_SDK_DISABLED") == "true" {
		return false, nil
	}
	switch name, exporter := first("OTEL_TRACES_EXPORTER"); exporter {
	case "none":
		return false, nil
	case "":
		if _, endpoint := first("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"); endpoint == "" {
			return false, nil
		}
	case "otlp":
	default:
		return false, cli.Usage(fmt.Errorf("%s=%q: traces are exported by otlp only, or none", name, exporter))
	}
	switch name, protocol := first("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"); protocol {
	case "", "http/protobuf":
		return true, nil
	default:
		return false, cli.Usage(fmt.Errorf("%s=%q: only http/protobuf is supported; collectors take it on port 4318 by default", name, protocol))
	}
}
