package feed

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/jetpull/jetpull"
)

// replyWait bounds the tries to publish a reply. After it the item's message is redelivered, and processed again.
const replyWait = time.Minute

// JetStreamHandler makes a handler for Consume that processes the items of a [JetStreamProcessor], on a consumer of the
// stream that captures its subject:
//
//	handler, err := feed.JetStreamHandler(js, feed.ProcessorFunc(process))
//	sub, err := jetpull.Subscribe(ctx, js, "RESUMES", "workers")
//	err = sub.Consume(ctx, handler, jetpull.Concurrency(8))
//
// An item has ID, Partition, Gate, Status, Attempt, Data and its idempotency key. An error of Process goes back in the
// reply, with [Permanent] and [RetryAfter], and counts as an attempt there; the message is acknowledged once the reply
// is stored. Where the worker dies, its Consume ends before Process returns, or the reply cannot be stored, the message
// is redelivered. One that is no item is terminated. A worker in another language publishes to the subject in the
// header [HeaderReply] what a handler of [NewHTTPProcessor] answers with, and then acknowledges.
func JetStreamHandler(js jetstream.JetStream, p Processor) (jetpull.Handler, error) {
	switch {
	case js == nil:
		return nil, invalid("js", "is nil")
	case p == nil:
		return nil, invalid("Processor", "is nil")
	}
	return func(ctx context.Context, m *jetpull.Msg) error {
		it, reply, err := receivedItem(m)
		if err != nil {
			return jetpull.Terminate("not an item of a feed", err)
		}
		if !trace.SpanContextFromContext(ctx).IsValid() { // else the handler is in otelpull's
			ctx = traceContext.Extract(ctx, propagation.HeaderCarrier(m.Headers()))
		}
		resp, err := processOne(ctx, p, it)
		if err != nil && ctx.Err() != nil {
			return err // called off: that is no attempt that failed, and another worker makes it
		}
		ctx, cancel := context.WithTimeout(ctx, replyWait)
		defer cancel()
		err = publishReply(ctx, js, reply, resp, err)
		if errors.Is(err, nats.ErrMaxPayload) {
			err = publishReply(ctx, js, reply, Response{}, Permanent(fmt.Errorf("the response is too large: %w", err)))
		}
		return err
	}, nil
}

func publishReply(ctx context.Context, js jetstream.JetStream, subject string, resp Response, err error) error {
	body, err := encodeReply(resp, err)
	if err != nil {
		return err
	}
	return publish(ctx, js, &nats.Msg{Subject: subject, Data: body})
}

func receivedItem(m *jetpull.Msg) (it Item, reply string, err error) {
	header := m.Headers()
	number := func(name string) int {
		n, parseErr := strconv.Atoi(header.Get(name))
		if parseErr != nil {
			err = errors.Join(err, fmt.Errorf("header %s: %w", name, parseErr))
		}
		return n
	}
	text := func(name string) string {
		if header.Get(name) == "" {
			err = errors.Join(err, fmt.Errorf("header %s is missing", name))
		}
		return header.Get(name)
	}
	it = Item{
		ID: text(HeaderItem), Partition: text(HeaderPartition), Gate: number(HeaderGate), Attempt: number(HeaderAttempt),
		Status: Available, Data: m.Data(), key: text(HeaderIdempotencyKey),
	}
	return it, text(HeaderReply), err
}
