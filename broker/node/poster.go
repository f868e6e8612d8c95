package node

import (
	"context"
	"net/http"
	"time"

	"github.com/jetpull/jetpull/broker"
	"github.com/jetpull/jetpull/internal/webhook"
)

// poster sends the broker's callbacks.
type poster struct{ client *webhook.Client }

// newPoster reads where callbacks may be. With networks = auto that follows
// from who can register one: behind a loopback listener it is who is on this
// machine anyway.
func newPoster(cfg *broker.Config) (*poster, error) {
	mode, allowed, err := broker.ParseNetworks(cfg.Connection.Networks)
	if err != nil {
		return nil, err
	}
	policy := webhook.Policy{Any: mode == "any" || mode == "auto" && cfg.HTTP.Loopback(), Allowed: allowed}
	return &poster{webhook.NewClient(policy, cfg.Connection.Timeout)}, nil
}

// Post implements broker.Poster.
func (p *poster) Post(ctx context.Context, c broker.Callback) (broker.Reply, error) {
	a, err := p.client.PostKeep(ctx, c.URL, c.Header, c.Payload, c.Keep)
	if a == nil {
		return broker.Reply{}, err
	}
	return broker.Reply{Code: a.Code, Header: a.Header, Body: a.Body}, err
}

type signer struct{ *webhook.Signer }

func newSigner(secret string) (broker.Signer, error) {
	s, err := webhook.NewSigner(secret)
	return signer{s}, err
}

// Sign implements broker.Signer.
func (s signer) Sign(header map[string][]string, id string, at time.Time, payload []byte) {
	s.Signer.Sign(http.Header(header), id, at, payload)
}
