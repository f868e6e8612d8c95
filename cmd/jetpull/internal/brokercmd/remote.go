package brokercmd

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/jetpull/jetpull/broker"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/natscontext"
	"github.com/jetpull/jetpull/internal/mask"
	"github.com/jetpull/jetpull/internal/service/httpclient"
)

// The environment variables are those of the broker itself.
const (
	envToken  = "JETPULL_BROKER_ADMIN_TOKEN"
	envSecret = "JETPULL_BROKER_GATEWAY_AUTH_HMAC_SHARED_SECRET"
)

// remote is a running broker.
type remote struct{ url, token, secret, ca string }

func (r *remote) flags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&r.url, "url", "http://127.0.0.1:8080", "`URL` of the broker")
	flags.StringVar(&r.token, "admin-token", "", "its admin `TOKEN`; seen in the list of processes, so better $"+envToken)
	flags.StringVar(&r.secret, "gateway-auth-hmac-shared-secret", "", "`SECRET` to sign requests with, if it wants that; better $"+envSecret)
	flags.StringVar(&r.ca, "tlsca", "", "`FILE` with the certificates of authorities, beside the system's")
}

// get returns the answer's body.
func (r *remote) get(ctx context.Context, path string) (io.ReadCloser, error) {
	if err := cli.CheckURL("--url", r.url); err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(r.url, "/")+path, nil)
	if err != nil {
		return nil, mask.Error(err, r.url)
	}
	if token := cmp.Or(r.token, os.Getenv(envToken)); token != "" {
		req.Header.Set("X-Broker-Admin-Token", token)
	}
	if secret := cmp.Or(r.secret, os.Getenv(envSecret)); secret != "" {
		gateway := broker.GatewayConfig{Scheme: "v2", Secret: secret}
		if err := gateway.Sign(req, nil); err != nil {
			return nil, err
		}
	}
	client, err := r.client()
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, mask.Error(err, r.url)
	}
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
		return nil, errors.Join(fmt.Errorf("GET %s: %s: %s", path, resp.Status, text), resp.Body.Close())
	}
	return resp.Body, nil
}

func (r *remote) client() (*http.Client, error) {
	if r.ca == "" {
		return httpclient.New(nil), nil
	}
	text, err := os.ReadFile(natscontext.ExpandHome(r.ca))
	if err != nil {
		return nil, fmt.Errorf("--tlsca: %w", err)
	}
	roots, err := x509.SystemCertPool()
	if err != nil {
		roots = x509.NewCertPool()
	}
	if !roots.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("--tlsca %s has no certificate in PEM", r.ca)
	}
	return httpclient.New(&http.Client{Transport: &http.Transport{
		Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
	}}), nil
}
