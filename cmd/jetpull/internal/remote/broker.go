package remote

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"os"

	"github.com/spf13/pflag"

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

// Broker returns the broker that the flags of a command name.
func Broker(asJSON *bool) *Server {
	var signingSecret, ca string
	return &Server{
		JSON: asJSON, name: "broker", envURL: BrokerURL, envToken: brokerToken, tokenFlag: "admin-token", tokenOf: "the administration, or of access to a channel",
		denied: client.ErrDenied, unavailable: client.ErrUnavailable, notFound: client.ErrNotFound,
		more: func(flags *pflag.FlagSet) {
			flags.StringVar(&signingSecret, "gateway-auth-hmac-shared-secret", "", "`SECRET` to sign requests with, if it wants that; better $"+brokerSecret)
			flags.StringVar(&ca, "tlsca", "", "`FILE` with the certificates of authorities, beside the system's")
		},
		send: func(ctx context.Context, base, token string, r Request, answer any) (http.Header, error) {
			h, err := brokerClient(cmp.Or(signingSecret, os.Getenv(brokerSecret)), ca)
			if err != nil {
				return nil, err
			}
			return client.NewAdmin(base, token, h).Send(ctx, r.Method, r.Path, r.Header, r.Body, answer)
		},
	}
}

// brokerClient is one that trusts the authorities of a file and signs with a secret, if there are any.
func brokerClient(secret, ca string) (*http.Client, error) {
	h := httpclient.New(nil)
	if ca != "" {
		roots, err := cli.Authorities(natscontext.ExpandHome(ca))
		if err != nil {
			return nil, fmt.Errorf("--tlsca: %w", err)
		}
		h.Transport = &http.Transport{
			Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
		}
	}
	if secret == "" {
		return h, nil
	}
	var err error
	h.Transport, err = client.Signing(secret, h.Transport)
	return h, err
}
