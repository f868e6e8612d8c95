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
		send: func(ctx context.Context, base, token string, r Request) (json.RawMessage, http.Header, error) {
			var data []byte
			err := client.New(base, token, nil).Call(ctx, r.Method, r.Path, r.Body, &data)
			return data, nil, err
		},
	}
}
