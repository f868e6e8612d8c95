package remote

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"os"

	"github.com/spf13/cobra"

	"github.com/jetpull/jetpull/broker/client"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/natscontext"
	"github.com/jetpull/jetpull/internal/service/httpclient"
)

// The environment variables of the commands that are clients of a broker. The token and the secret are those of the broker itself.
const (
	BrokerURL    = "JETPULL_BROKER_URL"
	brokerToken  = "JETPULL_BROKER_ADMIN_TOKEN"
	brokerSecret = "JETPULL_BROKER_GATEWAY_AUTH_HMAC_SHARED_SECRET"
)

// Broker is a running broker.
type Broker struct {
	*Server
	signingSecret, ca string
}

// NewBroker returns the broker that the flags of a command name.
func NewBroker(asJSON *bool) *Broker {
	b := &Broker{}
	b.Server = &Server{
		JSON: asJSON, name: "broker", envURL: BrokerURL, envToken: brokerToken, tokenFlag: "admin-token", tokenOf: "the administration, or of access to a channel",
		denied: client.ErrDenied, unavailable: client.ErrUnavailable, notFound: client.ErrNotFound,
		send: func(ctx context.Context, base, token string, r Request, answer any) (http.Header, error) {
			h, err := b.client()
			if err != nil {
				return nil, err
			}
			return client.NewAdmin(base, token, h).Send(ctx, r.Method, r.Path, r.Header, r.Body, answer)
		},
	}
	return b
}

// Flags adds the flags that say which broker to a command and those below it.
func (b *Broker) Flags(cmd *cobra.Command) {
	b.Server.Flags(cmd)
	flags := cmd.PersistentFlags()
	flags.StringVar(&b.signingSecret, "gateway-auth-hmac-shared-secret", "", "`SECRET` to sign requests with, if it wants that; better $"+brokerSecret)
	flags.StringVar(&b.ca, "tlsca", "", "`FILE` with the certificates of authorities, beside the system's")
}

// Stream returns the body of the answer to a GET, which may be long.
func (b *Broker) Stream(ctx context.Context, path string) (body io.ReadCloser, err error) {
	if _, err = b.request(ctx, Request{Method: http.MethodGet, Path: path}, &body); err != nil {
		err = b.explain(ctx, err)
	}
	return body, err
}

// client is one that trusts --tlsca and signs with the secret, if there are any.
func (b *Broker) client() (*http.Client, error) {
	h := httpclient.New(nil)
	if b.ca != "" {
		roots, err := cli.Authorities(natscontext.ExpandHome(b.ca))
		if err != nil {
			return nil, fmt.Errorf("--tlsca: %w", err)
		}
		h.Transport = &http.Transport{
			Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
		}
	}
	secret := cmp.Or(b.signingSecret, os.Getenv(brokerSecret))
	if secret == "" {
		return h, nil
	}
	var err error
	h.Transport, err = client.Signing(secret, h.Transport)
	return h, err
}
