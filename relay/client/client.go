// Package client is the Go client of a relay. A sender uses [Client] to send messages and [Callback] to receive their results. A
// receiver that responds later uses [Receiver].
package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/jetpull/jetpull/internal/mask"
	"github.com/jetpull/jetpull/internal/service/httpclient"
	"github.com/jetpull/jetpull/internal/service/httpserve"
)

// The final statuses of a message.
const (
	StatusDone   = "DONE"
	StatusFailed = "FAILED"
)

// Errors of the relay, for errors.Is.
var (
	// ErrUnauthorized means that the token is not valid, or not for this source. The error also matches fs.ErrPermission.
	ErrUnauthorized = errors.New("relay: not authorized")
	// ErrNotFound means that the relay does not know the receiver or the message. The error also matches fs.ErrNotExist.
	ErrNotFound = errors.New("relay: not found")
	// ErrConflict means that the relay has a message with the same ID and another payload or receiver.
	ErrConflict = errors.New("relay: another message has this ID")
	// ErrUnavailable means that the relay could not be reached, or could not store the message. Send it again, with the same ID.
	ErrUnavailable = errors.New("relay: not available")
)

// Error is an error response of the relay.
type Error struct {
	Status  int    // the HTTP status
	Code    string // the relay's error code; empty if the answer is not the relay's
	Message string // the relay's error text
}

// Error names the status, the code and the message.
func (e *Error) Error() string {
	return fmt.Sprintf("relay: answered %d %s: %s", e.Status, e.Code, e.Message)
}

// Is reports whether target is the error of this package for the status.
func (e *Error) Is(target error) bool {
	switch e.Status {
	case http.StatusUnauthorized, http.StatusForbidden:
		return target == ErrUnauthorized || target == fs.ErrPermission
	case http.StatusNotFound:
		return target == ErrNotFound || target == fs.ErrNotExist
	case http.StatusConflict:
		return target == ErrConflict
	}
	return e.Status >= http.StatusInternalServerError && target == ErrUnavailable
}

// Message is a message to send. Source and ID identify it: the relay delivers messages with the same pair once, however often they are sent.
type Message struct {
	Source   string `json:"source_id"`
	ID       string `json:"message_id"`
	Receiver string `json:"receiver"` // the receiver's name
	// Payload is encoded as JSON. A json.RawMessage is sent unchanged.
	Payload any `json:"payload"`
	// Headers are set on the POST to the receiver.
	Headers map[string]string `json:"headers,omitempty"`
}

// Result is the state of a message.
type Result struct {
	Source   string          `json:"source_id"`
	ID       string          `json:"message_id"`
	Status   string          `json:"status"`             // [StatusDone], [StatusFailed] or a state before these
	Response json.RawMessage `json:"response,omitempty"` // nil until the receiver has answered; null is an empty response
	// Truncated reports that the relay kept only the beginning of the response, as a JSON string.
	Truncated bool     `json:"truncated,omitempty"`
	Error     *Failure `json:"error,omitempty"` // the reason of StatusFailed; nil otherwise
}

// Failure is the reason why a message failed.
type Failure struct {
	Code    string `json:"code"`
	Stage   string `json:"stage"`
	Message string `json:"message"`
}

// Responded reports whether the receiver has responded, and the message has not failed.
func (r *Result) Responded() bool { return r.Response != nil && r.Error == nil }

// Client sends messages to a relay. It may be used by several goroutines.
type Client struct {
	base  string
	token string
	http  *http.Client
}

// New returns a client of the relay at base, such as http://127.0.0.1:8080. token is a sender's token, the admin token, or empty. If h is nil, only
// its ctx limits the time of a request. The client never follows redirects, because the token is for this relay only.
func New(base, token string, h *http.Client) *Client {
	return &Client{strings.TrimSuffix(base, "/"), token, httpclient.New(h)}
}

// Send sends a message to the relay. If the error is nil, the relay has stored the message and delivers it. If a message with this Source and ID
// was sent before, it is not delivered again, and Send returns its current state. Errors are [ErrUnauthorized], [ErrNotFound], [ErrConflict],
// [ErrUnavailable], after which the message may be stored, and an [*Error] for other statuses.
func (c *Client) Send(ctx context.Context, m Message) (Result, error) {
	return c.SendAndWait(ctx, m, 0)
}

// SendAndWait is like Send, and waits for the receiver's response for up to d, at most 5 minutes. If there is no response in time, it returns
// the current state without an error.
func (c *Client) SendAndWait(ctx context.Context, m Message, d time.Duration) (Result, error) {
	var r Result
	err := c.Call(ctx, http.MethodPost, "/v1/messages?wait="+url.QueryEscape(d.String()), m, &r)
	return r, err
}

// Wait waits for the response to a message that was sent before, for up to d, at most 5 minutes. If d is 0, or there is no response in time, it
// returns the current state. For a message that was published over NATS, it returns [ErrNotFound] until the relay has read the message.
func (c *Client) Wait(ctx context.Context, source, id string, d time.Duration) (Result, error) {
	var r Result
	path := "/v1/messages/" + PathEscape(source) + "/" + PathEscape(id) + "/response?wait=" + url.QueryEscape(d.String())
	err := c.Call(ctx, http.MethodGet, path, nil, &r)
	return r, err
}

// PathEscape escapes an ID or a name as one segment of a path. It also escapes "." and "..", which would otherwise count as directories.
func PathEscape(id string) string { return httpserve.EscapeID(id) }

// maxAnswer bounds an answer of the relay, in bytes.
const maxAnswer = 8 << 20

// Call makes any request of the relay's interface, which GET /openapi.json describes. It encodes body as JSON, but sends a []byte unchanged, and no
// body for nil. It decodes the answer from JSON into the value that answer points to, but stores it unchanged in a *[]byte, and discards it for nil.
// If the status is not 2xx, the error is an [*Error].
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
		var refused struct{ Error Error }
		_ = json.Unmarshal(data, &refused) // an answer that is not the relay's has no code
		refused.Error.Status = resp.StatusCode
		return &refused.Error
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
