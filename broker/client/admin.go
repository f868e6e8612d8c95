package client

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
)

// Admin makes requests to the routes of a broker that need its admin token. The broker's OpenAPI document describes them. It may
// be used by several goroutines.
type Admin struct {
	client *Client
	token  string
}

// NewAdmin returns a client of the broker at baseURL with its admin token. A nil httpClient means http.DefaultClient. Redirects
// are not followed.
func NewAdmin(baseURL, token string, httpClient *http.Client) *Admin {
	return &Admin{client: New(baseURL, httpClient), token: token}
}

// Call makes a request and decodes the answer into answer, unless that is nil. A body that is not nil is sent as JSON. If the status is not a
// success, the error is an [Error].
func (a *Admin) Call(ctx context.Context, method, path string, body, answer any) error {
	_, err := a.Send(ctx, method, path, nil, body, answer)
	return err
}

// Send is like Call with additional headers, such as the tokens of a channel and a producer. A body of type []byte is sent unchanged. An answer of
// type *io.ReadCloser gets the body, for the caller to close. Send returns the headers of the answer. Location names what it started or created.
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
