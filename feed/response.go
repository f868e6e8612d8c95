package feed

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

var (
	errNoResponse = errors.New("not the JSON of a response")
	errNoObject   = errors.New("it is no object")
)

// replyBody is a Response or an error as JSON.
type replyBody struct {
	Gate *int `json:"gate,omitempty"`
	Done bool `json:"done,omitempty"`
	// Data is nil if it is null, which encoders write for a field without a value.
	Data *json.RawMessage `json:"data,omitempty"`
	// Bytes is Data unchanged, even if it is empty or not JSON. It replaces Data.
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

// ParseResponse parses the answer of a handler in another process, for use in a [Processor]. It is the JSON of a [Response], or an error such as
// {"error": {"message": "…", "no_retry": true, "retry_after": 1.5}}, with a delay in seconds. ParseResponse returns such an error as an error, with
// [Permanent] and [RetryAfter]. "bytes" in base64 may replace "data" for data that is not JSON. "data": null leaves the item's data unchanged.
func ParseResponse(text []byte) (Response, error) {
	var body replyBody
	err := json.Unmarshal(text, &body)
	if err == nil && !bytes.HasPrefix(bytes.TrimSpace(text), []byte("{")) {
		err = errNoObject
	}
	if err != nil {
		return Response{}, fmt.Errorf("%w: %w: %.*q", errNoResponse, err, maxExcerpt, text)
	}
	if body.Error == nil {
		resp := Response{Gate: body.Gate, Done: body.Done}
		switch {
		case body.Bytes != nil:
			resp.Data = *body.Bytes
		case body.Data != nil:
			resp.Data = *body.Data
		}
		return resp, nil
	}
	said := errors.New(body.Error.Message)
	if body.Error.NoRetry {
		said = Permanent(said)
	}
	if body.Error.After != nil && *body.Error.After >= 0 {
		// This avoids an overflow of Duration. The watcher bounds the delay, too.
		seconds := min(*body.Error.After, maxDelay.Seconds())
		said = RetryAfter(time.Duration(seconds*float64(time.Second)), said)
	}
	return Response{}, said
}

type permanentError struct{ error }

func (e *permanentError) Unwrap() error { return e.error }

// Permanent returns an error for a [Processor] whose item cannot succeed. The item is Failed at once, whatever [MaxRetries] is. If err is nil,
// it returns nil.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &permanentError{err}
}

type retryAfterError struct {
	error
	after time.Duration
}

func (e *retryAfterError) Unwrap() error { return e.error }

// RetryAfter returns an error for a [Processor] whose item must be processed again after d instead of the delay of [Backoff]. A d of 0 or less means
// at once, and the maximum is a year. It counts as a failed attempt. If err is nil, it returns nil.
func RetryAfter(d time.Duration, err error) error {
	if err == nil {
		return nil
	}
	return &retryAfterError{err, d}
}
