// Package client is for those who talk to a relay: a [Client] for senders, [Callback] for the answers that they get,
// and [Receiver] for those who get messages and answer at once or later.
package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/jetpull/jetpull/internal/mask"
	"github.com/jetpull/jetpull/internal/service/httpclient"
	"github.com/jetpull/jetpull/internal/service/httpserve"
)

// The statuses that a message ends with.
const (
	StatusDone   = "DONE"
	StatusFailed = "FAILED"
)

// Errors of the relay, for errors.Is.
var (
	// ErrUnauthorized: the token is not valid, or not for this source.
	ErrUnauthorized = errors.New("relay: not authorized")
	// ErrNotFound: the relay does not know the receiver or the message.
	ErrNotFound = errors.New("relay: not found")
	// ErrConflict: another payload is there under the same ID.
	ErrConflict = errors.New("relay: another message has this ID")
	// ErrUnavailable: the relay could not be reached, or not store the message. Send it again, with the same ID.
	ErrUnavailable = errors.New("relay: not available")
)

// Error is what the relay answered instead of what was asked for.
type Error struct {
	Status  int
	Code    string
	Message string
}

// Error names the status, the code and the message.
func (e *Error) Error() string {
	return fmt.Sprintf("relay: answered %d %s: %s", e.Status, e.Code, e.Message)
}

// Is makes the errors of this package match.
func (e *Error) Is(target error) bool {
	switch e.Status {
	case http.StatusUnauthorized, http.StatusForbidden:
		return target == ErrUnauthorized
	case http.StatusNotFound:
		return target == ErrNotFound
	case http.StatusConflict:
		return target == ErrConflict
	}
	return e.Status >= http.StatusInternalServerError && target == ErrUnavailable
}

// Message is what a sender sends. Source and ID name it: the same pair is delivered once, however often it is sent.
type Message struct {
	Source   string `json:"source_id"`
	ID       string `json:"message_id"`
	Receiver string `json:"receiver"`
	// Payload is written as JSON; a json.RawMessage as it is.
	Payload any `json:"payload"`
	// Headers are set on the POST to the receiver.
	Headers map[string]string `json:"headers,omitempty"`
}

// Result is where a message is. Response is there once the receiver has answered; null is an empty response.
type Result struct {
	Source   string          `json:"source_id"`
	ID       string          `json:"message_id"`
	Status   string          `json:"status"`
	Response json.RawMessage `json:"response,omitempty"`
	// Truncated says that the relay kept only the beginning of the response, as a JSON string.
	Truncated bool     `json:"truncated,omitempty"`
	Error     *Failure `json:"error,omitempty"`
}

// Failure says why a message failed.
type Failure struct {
	Code    string `json:"code"`
	Stage   string `json:"stage"`
	Message string `json:"message"`
}

// Responded tells whether the receiver's response is there.
func (r *Result) Responded() bool { return r.Response != nil && r.Error == nil }

// Client sends messages to a relay. It may be used by several goroutines.
type Client struct {
	base  string
	token string
	http  *http.Client
}

// New makes a client of the relay at base, such as http://127.0.0.1:8080, with a sender's token; empty: none. A nil
// http.Client is one with the default transport. Redirects are not followed, whatever the http.Client says: the token is for this relay alone.
func New(base, token string, h *http.Client) *Client {
	return &Client{strings.TrimSuffix(base, "/"), token, httpclient.New(h)}
}

// Send has the relay deliver a message. When it returns without an error the message is stored; one that was sent
// before is not delivered again, and its present status is returned. After [ErrUnavailable] it may be stored.
func (c *Client) Send(ctx context.Context, m Message) (Result, error) {
	return c.message(ctx, "/v1/messages", m)
}

// SendAndWait is Send, and waits up to d, at most 5 minutes, for the receiver's response. If that does not come in
// time, the result has the status that the message has by then.
func (c *Client) SendAndWait(ctx context.Context, m Message, d time.Duration) (Result, error) {
	return c.message(ctx, "/v1/messages?wait="+url.QueryEscape(d.String()), m)
}

func (c *Client) message(ctx context.Context, path string, m Message) (Result, error) {
	var r Result
	err := c.Call(ctx, http.MethodPost, path, m, &r)
	return r, err
}

// Wait waits up to d, at most 5 minutes, for the response to a message that was sent before; 0 does not wait. A message that was
// published over NATS is [ErrNotFound] until the relay has read it.
func (c *Client) Wait(ctx context.Context, source, id string, d time.Duration) (Result, error) {
	var r Result
	path := "/v1/messages/" + PathEscape(source) + "/" + PathEscape(id) + "/response?wait=" + url.QueryEscape(d.String())
	err := c.Call(ctx, http.MethodGet, path, nil, &r)
	return r, err
}

// PathEscape writes an ID or a name as a segment of a path. Dots alone would be taken for directories.
func PathEscape(id string) string { return httpserve.EscapeID(id) }

// maxAnswer bounds an answer of the relay, in bytes.
const maxAnswer = 8 << 20

// Call makes any request of the relay's interface, which GET /openapi.json describes. The body is written as JSON, a
// []byte as it is; nil is none. The answer is read as JSON into what answer points to, as it is into a *[]byte; nil drops
// it. An answer other than 2xx is an [*Error].
func (c *Client) Call(ctx context.Context, method, path string, body, answer any) error {
	data, ok := body.([]byte)
	if body != nil && !ok {
		var err error
		if data, err = json.Marshal(body); err != nil {
			return fmt.Errorf("relay: write the body of %s %s: %w", method, path, err)
		}
	}
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, bytes.NewReader(data))
	if err != nil {
		return fmt.Errorf("relay: %w", mask.Error(err, c.base))
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	if data != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnavailable, mask.Error(err, c.base))
	}
	defer func() { _ = resp.Body.Close() }()
	if data, err = io.ReadAll(io.LimitReader(resp.Body, maxAnswer)); err != nil {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	if resp.StatusCode >= http.StatusMultipleChoices {
		return refusal(resp.StatusCode, data)
	}
	switch into := answer.(type) {
	case nil:
		return nil
	case *[]byte:
		*into = data
		return nil
	}
	if err := json.Unmarshal(data, answer); err != nil {
		return fmt.Errorf("relay: read the answer to %s %s: %w", method, path, err)
	}
	return nil
}

// refusal is the error of an answer that is no success.
func refusal(status int, data []byte) error {
	refused := &Error{Status: status}
	var text struct {
		Error struct{ Code, Message string }
	}
	if json.Unmarshal(data, &text) == nil {
		refused.Code, refused.Message = text.Error.Code, text.Error.Message
	}
	return refused
}
