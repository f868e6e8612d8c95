// Package remote is the client of a running broker or relay for the commands.
package remote

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	brokerclient "github.com/jetpull/jetpull/broker/client"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/natscontext"
	"github.com/jetpull/jetpull/internal/service/httpclient"
	relayclient "github.com/jetpull/jetpull/relay/client"
)

const defaultURL = "http://127.0.0.1:8080"

// Server says which broker or relay to talk to, and how to show what it answers.
type Server struct {
	JSON    *bool
	Timeout time.Duration

	name                          string // of the command that runs one
	envURL, envToken              string
	tokenFlag, tokenOf            string
	denied, unavailable, notFound error                // of its client
	more                          func(*pflag.FlagSet) // adds flags that one kind of server has; nil: none
	send                          func(ctx context.Context, base, token string, r Request, answer any) (http.Header, error)

	url, token string
}

// Request is a request to a server.
type Request struct {
	Method, Path string
	Header       http.Header
	Body         any           // written as JSON; a []byte as it is
	Wait         time.Duration // what it may take beyond --timeout
}

// Flags adds the flags that say which server to a command and those below it.
func (s *Server) Flags(cmd *cobra.Command) {
	flags := cmd.PersistentFlags()
	flags.StringVar(&s.url, "url", "", "`URL` of the "+s.name+"; by default $"+s.envURL+", or else "+defaultURL)
	flags.StringVar(&s.token, s.tokenFlag, "", "`TOKEN` of "+s.tokenOf+"; prefer $"+s.envToken+", because other users of this machine can see the command line")
	flags.DurationVar(&s.Timeout, "timeout", 10*time.Second, "time limit of a request; the time of --wait is added to it")
	flags.BoolVar(s.JSON, "json", false, "print JSON, one value per line; errors too")
	if s.more != nil {
		s.more(flags)
	}
}

// request makes a request. The answer is a pointer to a json.RawMessage, or what else the client of the server fills in.
func (s *Server) request(ctx context.Context, r Request, answer any) (http.Header, error) {
	base := cmp.Or(s.url, os.Getenv(s.envURL), defaultURL)
	if err := cli.CheckURL("--url", base); err != nil {
		return nil, err
	}
	return s.send(ctx, base, s.secret(), r, answer)
}

// Ask makes a request, and reads the answer into view unless that is nil.
func (s *Server) Ask(ctx context.Context, r Request, view any) (answer json.RawMessage, header http.Header, err error) {
	limited, cancel := context.WithTimeout(ctx, s.Timeout+r.Wait)
	defer cancel()
	header, err = s.request(limited, r, &answer)
	switch {
	case err != nil:
		return nil, nil, s.explain(ctx, err)
	case view == nil:
		return answer, header, nil
	}
	if err := json.Unmarshal(answer, view); err != nil {
		return nil, nil, fmt.Errorf("read the %s's answer to %s %s: %w", s.name, r.Method, r.Path, err)
	}
	return answer, header, nil
}

// Stream returns the body of the answer to a GET, which may be long.
func (s *Server) Stream(ctx context.Context, path string) (body io.ReadCloser, err error) {
	if _, err = s.request(ctx, Request{Method: http.MethodGet, Path: path}, &body); err != nil {
		err = s.explain(ctx, err)
	}
	return body, err
}

// secret returns the token to show.
func (s *Server) secret() string { return cmp.Or(s.token, os.Getenv(s.envToken)) }

// Get reads what a path shows.
func (s *Server) Get(ctx context.Context, path string, view any) (json.RawMessage, error) {
	answer, _, err := s.Ask(ctx, Request{Method: http.MethodGet, Path: path}, view)
	return answer, err
}

// explain says what to do about a request that has failed.
func (s *Server) explain(ctx context.Context, err error) error {
	dial, isDial := errors.AsType[*net.OpError](err)
	switch {
	case ctx.Err() != nil:
		return cli.ErrInterrupted
	case errors.Is(err, s.denied) && s.secret() != "":
		return fmt.Errorf("%w: the token of --%s or $%s does not allow it", err, s.tokenFlag, s.envToken)
	case errors.Is(err, s.denied):
		return fmt.Errorf("%w: give --%s or $%s", err, s.tokenFlag, s.envToken)
	case isDial && dial.Op == "dial":
		return fmt.Errorf("%w; start one with jetpull %s, or give --url or $%s", err, s.name, s.envURL)
	}
	return err
}

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
		denied: brokerclient.ErrDenied, unavailable: brokerclient.ErrUnavailable, notFound: brokerclient.ErrNotFound,
		more: func(flags *pflag.FlagSet) {
			flags.StringVar(&signingSecret, "gateway-auth-hmac-shared-secret", "", "`SECRET` to sign requests with, if it wants that; better $"+brokerSecret)
			flags.StringVar(&ca, "tlsca", "", "`FILE` with the certificates of authorities, beside the system's")
		},
		send: func(ctx context.Context, base, token string, r Request, answer any) (http.Header, error) {
			h, err := brokerClient(cmp.Or(signingSecret, os.Getenv(brokerSecret)), ca)
			if err != nil {
				return nil, err
			}
			return brokerclient.NewAdmin(base, token, h).Send(ctx, r.Method, r.Path, r.Header, r.Body, answer)
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
	h.Transport, err = brokerclient.Signing(secret, h.Transport)
	return h, err
}

// The environment variables of the commands that are clients of a relay.
const (
	RelayURL   = "JETPULL_RELAY_URL"
	RelayToken = "JETPULL_RELAY_TOKEN"
)

// Relay returns the relay that the flags of a command name.
func Relay(asJSON *bool) *Server {
	return &Server{
		JSON: asJSON, name: "relay", envURL: RelayURL, envToken: RelayToken, tokenFlag: "token", tokenOf: "a sender or the administration",
		denied: relayclient.ErrUnauthorized, unavailable: relayclient.ErrUnavailable, notFound: relayclient.ErrNotFound,
		send: func(ctx context.Context, base, token string, r Request, answer any) (http.Header, error) {
			if text, ok := answer.(*json.RawMessage); ok {
				answer = (*[]byte)(text) // which may be empty
			}
			return nil, relayclient.New(base, token, nil).Call(ctx, r.Method, r.Path, r.Body, answer)
		},
	}
}
