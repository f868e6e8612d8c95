package feed

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

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

// replyBody is a reply: what an HTTP handler answers, and what that has no place for.
type replyBody struct {
	Gate *int            `json:"gate,omitempty"`
	Done bool            `json:"done,omitempty"`
	Data json.RawMessage `json:"data,omitempty"`
	// Bytes is Data as it is, also empty or not JSON. It replaces Data.
	Bytes *[]byte     `json:"bytes,omitempty"`
	Error *replyError `json:"error,omitempty"`
}

type replyError struct {
	Message string `json:"message"`
	NoRetry bool   `json:"no_retry,omitempty"`
	// After is the delay of RetryAfter in seconds.
	After *float64 `json:"retry_after,omitempty"`
}

func encodeReply(resp Response, err error) ([]byte, error) {
	body := replyBody{Gate: resp.Gate, Done: resp.Done}
	if resp.Data != nil {
		body.Bytes = (*[]byte)(&resp.Data)
	}
	if err != nil {
		_, permanent := errors.AsType[*permanentError](err)
		body = replyBody{Error: &replyError{Message: err.Error(), NoRetry: permanent}}
		if after, ok := errors.AsType[*retryAfterError](err); ok {
			seconds := after.after.Seconds()
			body.Error.After = &seconds
		}
	}
	return json.Marshal(body)
}

func parseReply(text []byte) (Response, error) {
	var body replyBody
	if err := json.Unmarshal(text, &body); err != nil {
		return Response{}, fmt.Errorf("the reply is not the JSON of a response: %w: %.*q", err, maxExcerpt, text)
	}
	if body.Error == nil {
		resp := Response{Gate: body.Gate, Done: body.Done, Data: body.Data}
		if body.Bytes != nil {
			resp.Data = *body.Bytes
		}
		return resp, nil
	}
	err := errors.New(body.Error.Message)
	if body.Error.NoRetry {
		err = Permanent(err)
	}
	if body.Error.After != nil {
		// Within what a Duration holds; the watcher bounds it further.
		seconds := min(max(*body.Error.After, 0), maxDelay.Seconds())
		err = RetryAfter(time.Duration(seconds*float64(time.Second)), err)
	}
	return Response{}, err
}
