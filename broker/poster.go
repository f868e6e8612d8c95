package broker

import (
	"context"
	"errors"
	"fmt"

	"github.com/jetpull/jetpull/broker/internal/work"
	"github.com/jetpull/jetpull/internal/webhook"
)

// poster sends the broker's callbacks, or its events.
type poster struct {
	client *webhook.Client
	// setting says where requests may go; empty for events, of which none does.
	setting string
}

// Post implements Poster.
func (p *poster) Post(ctx context.Context, c work.Callback) (work.Reply, error) {
	a, err := p.client.PostKeep(ctx, c.URL, c.Header, c.Payload, c.Keep)
	if errors.Is(err, webhook.ErrForbiddenAddress) && p.setting != "" {
		err = &work.RefusedError{Err: fmt.Errorf("%w; see %s", err, p.setting)}
	}
	if a == nil {
		return work.Reply{}, err
	}
	return work.Reply{Code: a.Code, Header: a.Header, Body: a.Body}, err
}

func newSigner(secret string) (work.Signer, error) { return webhook.NewSigner(secret) }
