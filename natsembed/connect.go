package natsembed

import (
	"context"
	"fmt"
	"sync"

	"github.com/nats-io/nats.go"

	"github.com/jetpull/jetpull/internal/mask"
)

// Connect connects to the server at url. If url is empty, it first starts a server in a temporary folder. stop closes the
// connection, and stops that server and removes its folder. It may be called more than once.
func Connect(ctx context.Context, url string, opts ...nats.Option) (nc *nats.Conn, stop func(), err error) {
	remove := func() {}
	if url == "" {
		srv, err := Start(ctx, Options{})
		if err != nil {
			return nil, nil, err
		}
		url, remove = srv.URL(), srv.Stop
	}
	nc, err = nats.Connect(url, opts...)
	if err != nil {
		remove()
		return nil, nil, fmt.Errorf("connect to %s: %w", mask.URL(url), mask.Error(err, url))
	}
	return nc, sync.OnceFunc(func() {
		nc.Close()
		remove()
	}), nil
}
