package remote

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/jetpull/jetpull/relay/client"
)

// The environment variables of the commands that are clients of a relay.
const (
	RelayURL   = "JETPULL_RELAY_URL"
	RelayToken = "JETPULL_RELAY_TOKEN"
)

// Relay returns the relay that the flags of a command name.
func Relay(asJSON *bool) *Server {
	return &Server{
		JSON: asJSON, name: "relay", envURL: RelayURL, envToken: RelayToken, tokenFlag: "token", tokenOf: "a sender or the administration",
		denied: client.ErrUnauthorized, unavailable: client.ErrUnavailable, notFound: client.ErrNotFound,
		send: func(ctx context.Context, base, token string, r Request, answer any) (http.Header, error) {
			if text, ok := answer.(*json.RawMessage); ok {
				answer = (*[]byte)(text) // which may be empty
			}
			return nil, client.New(base, token, nil).Call(ctx, r.Method, r.Path, r.Body, answer)
		},
	}
}
