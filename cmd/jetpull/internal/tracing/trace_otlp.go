//go:build otlp

package tracing

import (
	"context"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// newExporter makes the exporter that the environment describes.
func newExporter(ctx context.Context) (sdktrace.SpanExporter, error) { return otlptracehttp.New(ctx) }
