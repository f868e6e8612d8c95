package webhook

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
)

// ErrTooLarge says that the body of an answer is over the limit.
var ErrTooLarge = errors.New("the answer is too large")

// Answer is what a request was answered with.
type Answer struct {
	Code   int
	Header http.Header
	Body   []byte
}

// Exchange sends one request and reads the answer's body, whatever its status, within the client's timeout. A body over
// limit bytes is ErrTooLarge. The method is POST, or GET for a nil payload.
func (c *Client) Exchange(ctx context.Context, url string, header http.Header, payload []byte, limit int64) (*Answer, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, c.timeout, fmt.Errorf("no answer within %s: %w", c.timeout, context.DeadlineExceeded))
	defer cancel()
	method := http.MethodPost
	if payload == nil {
		method = http.MethodGet
	}
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(payload))
	if err != nil {
		return nil, fmt.Errorf("make the request: %w", err)
	}
	req.Header = header
	resp, err := c.http.Do(req)
	if err != nil {
		if cause := context.Cause(ctx); cause != nil && !errors.Is(err, ErrForbiddenAddress) {
			return nil, cause
		}
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, limit+1))
	switch {
	case err != nil && context.Cause(ctx) != nil:
		return nil, context.Cause(ctx)
	case err != nil:
		return nil, fmt.Errorf("read the answer: %w", err)
	case int64(len(body)) > limit:
		return nil, fmt.Errorf("%w: over %d bytes", ErrTooLarge, limit)
	}
	return &Answer{resp.StatusCode, resp.Header, body}, nil
}
