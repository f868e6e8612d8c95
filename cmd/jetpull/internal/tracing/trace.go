// Package tracing exports the spans of a process as configured by the OTEL environment variables.
package tracing

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"regexp"
	"strings"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"

	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
)

// Help is what the help of a command says of it.
const Help = `Traces are exported by OTLP over HTTP where the environment says so as
OpenTelemetry has it: OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_TRACES_EXPORTER,
OTEL_TRACES_SAMPLER, OTEL_SERVICE_NAME and so on. Only a build with the tag
otlp has the exporter, because that brings gRPC:
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
	if err := checkTraceSecrets(os.Getenv); err != nil {
		return func(context.Context) {}, err
	}
	exporter, err := newExporter(ctx)
	if errors.Is(err, errNoExporter) {
		log.Warn("the environment asks for traces, and none are exported", "error", err)
		return func(context.Context) {}, nil
	}
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

// checkTraceSecrets refuses those variables of the exporter that may hold a
// secret and that it could not read. It would print what it could not read,
// secret and all, and go on without it.
func checkTraceSecrets(getenv func(string) string) error {
	for _, name := range []string{"OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS"} {
		for i, entry := range strings.Split(getenv(name), ",") {
			if strings.TrimSpace(entry) != "" && !header.MatchString(entry) { // none, as after a last comma, does no harm
				return cli.Usage(fmt.Errorf("%s: entry %d is not name=value; write commas between entries, and percent-encode what is special in a value", name, i+1))
			}
		}
	}
	for _, name := range []string{"OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"} {
		if _, err := url.Parse(strings.TrimSpace(getenv(name))); err != nil {
			return cli.Usage(fmt.Errorf("%s is not a URL; write one such as http://127.0.0.1:4318", name))
		}
	}
	return nil
}

// header is name=value: a token (RFC 9110, section 5.6.2), and a value in which a percent sign begins an encoded byte. An error about one
// shows nothing of it: what looks like a name can be a part of the secret.
var header = regexp.MustCompile("^\\s*[0-9A-Za-z!#$%&'*+.^_`|~-]+\\s*=(?s:[^%]|%[0-9A-Fa-f]{2})*$")
