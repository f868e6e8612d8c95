package client

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
)

// Admin makes requests to the routes of a broker that need its admin token. The broker's OpenAPI document has them. It may be used by
// several goroutines.
type Admin struct {
	client *Client
	token  string
}

// NewAdmin is a client of the broker at baseURL with its admin token. Nil: http.DefaultClient, without redirects.
func NewAdmin(baseURL, token string, httpClient *http.Client) *Admin {
	return &Admin{client: New(baseURL, httpClient), token: token}
}

// Call makes a request with a body in JSON, unless that is nil, and decodes the answer into answer, unless that is nil. An answer that
// is no success is an [Error].
func (a *Admin) Call(ctx context.Context, method, path string, body, answer any) error {
	_, err := a.call(ctx, method, path, body, answer)
	return err
}

// Begin posts a request that begins something, and returns the path of what has begun.
func (a *Admin) Begin(ctx context.Context, path string, body any) (location string, err error) {
	header, err := a.call(ctx, http.MethodPost, path, body, nil)
	if err != nil {
		return "", err
	}
	return header.Get("Location"), nil
}

func (a *Admin) call(ctx context.Context, method, path string, body, answer any) (http.Header, error) {
	header := http.Header{}
	if a.token != "" {
		header.Set("Authorization", "Bearer "+a.token)
	}
	var data []byte
	if body != nil {
		var err error
		if data, err = json.Marshal(body); err != nil {
			return nil, fmt.Errorf("write the body of %s %s: %w", method, path, err)
		}
		header.Set("Content-Type", "application/json")
	}
	return a.client.do(ctx, method, path, header, data, nil, answer)
}
