// Package client is the Go client of a webhook broker. Producers broadcast messages with [Client.Broadcast]. Workers handle the jobs of a pull
// consumer with [Consumer.Consume], which works like jetpull's Consume. [Admin] administers a broker.
package client

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/jetpull/jetpull/broker/internal/signature"
	"github.com/jetpull/jetpull/internal/mask"
	"github.com/jetpull/jetpull/internal/service/httpclient"
	"github.com/jetpull/jetpull/internal/service/httpserve"
)

// errorLimit is how many bytes of an error's text are read.
const errorLimit = 4 << 10

// These errors can be distinguished with errors.Is.
var (
	// ErrNotFound reports that the channel, message or job does not exist. The error also matches fs.ErrNotExist.
	ErrNotFound = errors.New("not found")
	// ErrDenied reports that a token is wrong or missing. The error also matches fs.ErrPermission.
	ErrDenied = errors.New("denied")
	// ErrDuplicate reports that the channel already has a message with this ID: an earlier attempt to broadcast it succeeded.
	ErrDuplicate = errors.New("duplicate message ID")
	// ErrClaimLost reports that the claim has ended: it expired, or another worker has the job.
	ErrClaimLost = errors.New("claim lost")
	// ErrUnavailable reports that the broker is unreachable or cannot serve the request now. The caller may retry. A retry of a broadcast must use
	// the same message ID, because the first attempt may have succeeded.
	ErrUnavailable = errors.New("broker unavailable")
)

// Error is a response of the broker with a status other than success. It matches this package's error for the status, if any.
type Error struct {
	Status int    // the HTTP status
	Text   string // the body of the response, up to 4 KiB
	kind   error
}

// Error implements error.
func (e *Error) Error() string { return fmt.Sprintf("broker answered %d: %s", e.Status, e.Text) }

// Unwrap returns the error of this package for the status, or nil.
func (e *Error) Unwrap() error { return e.kind }

// kindOf maps a status to this package's error for it. The meaning of a 409 depends on the request.
func kindOf(status int, conflict error) error {
	switch status {
	case http.StatusNotFound:
		return errors.Join(ErrNotFound, fs.ErrNotExist) // fs.ErrNotExist is for callers that do not import this package
	case http.StatusUnauthorized, http.StatusForbidden:
		return errors.Join(ErrDenied, fs.ErrPermission)
	case http.StatusConflict:
		return conflict
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return ErrUnavailable
	}
	return nil
}

// Client is a client of one broker. It is safe for concurrent use.
type Client struct {
	base string
	http *http.Client
}

// New returns a client of the broker at a URL such as http://127.0.0.1:8080. If httpClient is nil, only the ctx of a request limits its duration. The
// client never follows redirects, because the tokens are for this broker only.
func New(baseURL string, httpClient *http.Client) *Client {
	return &Client{base: strings.TrimSuffix(baseURL, "/"), http: httpclient.New(httpClient)}
}

// do makes one request. If result is not nil, do decodes the response into it.
func (c *Client) do(ctx context.Context, method, path string, header http.Header, body []byte, conflict error, result any) (http.Header, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("make the request: %w", mask.Error(err, c.base))
	}
	for name, values := range header {
		if !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidHeaderFieldValue(strings.Join(values, "")) {
			return nil, fmt.Errorf("the header %q has what cannot be sent", name)
		}
	}
	req.Header = header
	resp, err := c.http.Do(req)
	if err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, mask.Error(err, c.base))
	}
	if body, ok := result.(*io.ReadCloser); ok && resp.StatusCode == http.StatusOK {
		*body = resp.Body
		return resp.Header, nil
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode >= http.StatusMultipleChoices {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, errorLimit))
		return nil, &Error{Status: resp.StatusCode, Text: string(text), kind: kindOf(resp.StatusCode, conflict)}
	}
	if result == nil || resp.StatusCode != http.StatusOK {
		// The connection can be reused only after the body has been read to its end.
		_, err = io.Copy(io.Discard, io.LimitReader(resp.Body, errorLimit))
	} else {
		err = json.NewDecoder(resp.Body).Decode(result)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: read the answer: %w", ErrUnavailable, err)
	}
	return resp.Header, nil
}

// Producer identifies a producer and the channel to which it broadcasts.
type Producer struct {
	Channel      string // the ID of the channel
	ChannelToken string
	ID           string // of the producer
	Token        string // of the producer
}

// Message is a message to broadcast.
type Message struct {
	// ID is unique in the channel. If it is empty, the broker generates one. A broadcast with an ID is safe to retry.
	ID          string
	Payload     []byte // at least one byte
	ContentType string // application/octet-stream if empty
	EventType   string // consumers filter by it
	Priority    int    // at least 0; jobs with a higher priority go first
	// Headers are stored and passed on to consumers. A header that Producer or another field sets, such as Content-Type, is an error.
	Headers map[string]string
	// At is the time at which the broker broadcasts the message, rounded up to whole seconds. Zero means at once.
	At time.Time
}

// broadcastHeaders are the headers that the fields of Producer and Message set.
var broadcastHeaders = map[string]bool{
	"X-Broker-Channel-Token": true, "X-Broker-Producer-Id": true, "X-Broker-Producer-Token": true, "X-Broker-Metadata-Headers": true,
	"X-Broker-Message-Id": true, "Content-Type": true, "X-Broker-Event-Type": true, "X-Broker-Message-Priority": true, "X-Broker-Scheduled-For": true,
}

// Broadcast stores a message and returns its path, from the Location header. When it returns without an error, the message is on disk. The errors are
// [ErrDuplicate], [ErrDenied], [ErrNotFound], [ErrUnavailable], and [Error] for other statuses.
func (c *Client) Broadcast(ctx context.Context, p Producer, m Message) (location string, err error) {
	header := http.Header{
		"X-Broker-Channel-Token":  {p.ChannelToken},
		"X-Broker-Producer-Id":    {p.ID},
		"X-Broker-Producer-Token": {p.Token},
	}
	var names []string
	for name, value := range m.Headers {
		if broadcastHeaders[http.CanonicalHeaderKey(name)] {
			return "", fmt.Errorf("broadcast to channel %q: the header %q is the broker's own: leave it out of Headers and use the fields of Producer and "+
				"Message", p.Channel, name)
		}
		header.Set(name, value)
		names = append(names, name)
	}
	for name, value := range map[string]string{
		"X-Broker-Metadata-Headers": strings.Join(names, ","),
		"X-Broker-Message-ID":       m.ID,
		"Content-Type":              m.ContentType,
		"X-Broker-Event-Type":       m.EventType,
	} {
		if value != "" {
			header.Set(name, value)
		}
	}
	if m.Priority != 0 {
		header.Set("X-Broker-Message-Priority", strconv.Itoa(m.Priority))
	}
	if !m.At.IsZero() {
		header.Set("X-Broker-Scheduled-For", m.At.UTC().Format(time.RFC3339Nano))
	}
	answer, err := c.do(ctx, http.MethodPost, "/channel/"+httpserve.EscapeID(p.Channel)+"/broadcast", header, m.Payload, ErrDuplicate, nil)
	if err != nil {
		return "", fmt.Errorf("broadcast to channel %q: %w", p.Channel, err)
	}
	return answer.Get("Location"), nil
}

// Admin calls the routes of a broker that need its admin token. The broker's OpenAPI document describes them. It is safe for concurrent use.
type Admin struct {
	client *Client
	token  string
}

// NewAdmin returns a client of the broker at baseURL that sends the admin token. A nil httpClient means http.DefaultClient. The client does not
// follow redirects.
func NewAdmin(baseURL, token string, httpClient *http.Client) *Admin {
	return &Admin{client: New(baseURL, httpClient), token: token}
}

// Call makes a request. If body is not nil, Call sends it as JSON. If answer is not nil, Call decodes the response into it. If the status is not a
// success, the error is an [Error].
func (a *Admin) Call(ctx context.Context, method, path string, body, answer any) error {
	_, err := a.Send(ctx, method, path, nil, body, answer)
	return err
}

// Send is like Call, but also sends header, such as the tokens of a channel and a producer. It sends a body of type []byte unchanged. If answer is an
// *io.ReadCloser, it gets the body, which the caller must close. Send returns the response's headers; Location names a created object or operation.
func (a *Admin) Send(ctx context.Context, method, path string, header http.Header, body, answer any) (http.Header, error) {
	send := http.Header{}
	if a.token != "" {
		send.Set("Authorization", "Bearer "+a.token)
	}
	data, ok := body.([]byte)
	if body != nil && !ok {
		var err error
		if data, err = json.Marshal(body); err != nil {
			return nil, fmt.Errorf("write the body of %s %s: %w", method, path, err)
		}
		send.Set("Content-Type", "application/json")
	}
	maps.Copy(send, header)
	return a.client.do(ctx, method, path, send, data, nil, answer)
}

// Signing returns a transport that signs each request for a broker with [gateway-auth] mode=hmac and passes it to next. The signature is valid for
// the schemes v1 and v2. A nil next means http.DefaultTransport. secret is the broker's hmac-shared-secret, in base64. Give the transport to New:
//
//	transport, err := client.Signing(secret, nil)
//	c := client.New("http://127.0.0.1:8080", &http.Client{Transport: transport})
func Signing(secret string, next http.RoundTripper) (http.RoundTripper, error) {
	key, err := base64.StdEncoding.DecodeString(secret)
	if err != nil {
		return nil, fmt.Errorf("the secret of signatures is not base64: %w", err)
	}
	if len(key) == 0 {
		return nil, errors.New("the secret of signatures is empty: give the broker's hmac-shared-secret")
	}
	return &signing{key, cmp.Or(next, http.DefaultTransport)}, nil
}

type signing struct {
	key  []byte
	next http.RoundTripper
}

// RoundTrip implements http.RoundTripper. It signs a copy, because a RoundTripper must not change its request.
func (s *signing) RoundTrip(r *http.Request) (*http.Response, error) {
	var body []byte
	if r.Body != nil {
		var err error
		body, err = io.ReadAll(r.Body)
		if err = errors.Join(err, r.Body.Close()); err != nil {
			return nil, fmt.Errorf("read the body to sign it: %w", err)
		}
	}
	signed := r.Clone(r.Context())
	if r.Body != nil {
		signed.Body = io.NopCloser(bytes.NewReader(body))
	}
	about := signature.Request{Method: r.Method, Target: r.URL.RequestURI(), Body: body}
	signed.Header.Set(signature.Header, signature.New(signature.V2, s.key, time.Now(), about).String())
	return s.next.RoundTrip(signed)
}
