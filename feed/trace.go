package feed

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// traceContext carries the parent of a span in the headers of requests and messages (W3C Trace Context).
var traceContext propagation.TraceContext

// traced is a processor with a span around each attempt, where a tracer is given.
func (c *config) traced(p Processor) Processor {
	if c.tracer == nil {
		return p
	}
	t := tracedProcessor{p, c.tracer.Tracer("github.com/jetpull/jetpull/feed")}
	if b, ok := p.(BatchProcessor); ok {
		return tracedBatch{t, b}
	}
	return t
}

type tracedProcessor struct {
	Processor
	tracer trace.Tracer
}

// Process implements [Processor].
func (t tracedProcessor) Process(ctx context.Context, it Item) (Response, error) {
	ctx, span := t.start(ctx, it)
	resp, err := Response{}, errExited
	defer func() { endSpan(span, it, resp, err) }()
	resp, err = processOne(ctx, t.Processor, it)
	return resp, err
}

func (t tracedProcessor) start(ctx context.Context, it Item) (context.Context, trace.Span) {
	return t.tracer.Start(ctx, "process", trace.WithAttributes(
		attribute.String("feed.partition", it.Partition), attribute.String("feed.item", it.ID),
		attribute.Int("feed.gate", it.Gate), attribute.Int("feed.attempt", it.Attempt),
	))
}

func endSpan(span trace.Span, it Item, resp Response, err error) {
	switch {
	case err != nil:
		span.SetStatus(codes.Error, firstLine(err))
	case resp.Done:
		span.SetAttributes(attribute.Bool("feed.done", true))
	case resp.Gate != nil && *resp.Gate != it.Gate:
		span.SetAttributes(attribute.Int("feed.next_gate", *resp.Gate))
	}
	span.End()
}

type tracedBatch struct {
	tracedProcessor
	batch BatchProcessor
}

// BatchSize implements [BatchProcessor].
func (t tracedBatch) BatchSize() int { return t.batch.BatchSize() }

// ProcessBatch implements [BatchProcessor]. Each item has a span, all of them of the call's length.
func (t tracedBatch) ProcessBatch(ctx context.Context, items []Item) ([]Response, []error) {
	spans := make([]trace.Span, len(items))
	for i, it := range items {
		_, spans[i] = t.start(ctx, it)
	}
	resps, errs := allFailed(len(items), errExited)
	defer func() {
		for i, span := range spans {
			endSpan(span, items[i], resps[i], errs[i])
		}
	}()
	resps, errs = processBatch(ctx, t.batch, items)
	return resps, errs
}
