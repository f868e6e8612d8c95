package embed

import (
	"fmt"
	"os"
	"sync"

	"github.com/nats-io/nats.go"
)

// Connect connects to the server at url. If url is empty it starts a server in
// a temporary folder first, which stop shuts down and removes; stop closes the
// connection too, and may be called more than once.
func Connect(url string, opts ...nats.Option) (nc *nats.Conn, stop func(), err error) {
	remove := func() {}
	if url == "" {
		dir, err := os.MkdirTemp("", "jetpull-")
		if err != nil {
			return nil, nil, fmt.Errorf("embed: make a folder for the store: %w", err)
		}
		srv, err := Start(Options{Dir: dir})
		if err != nil {
			_ = os.RemoveAll(dir)
			return nil, nil, err
		}
		url = srv.URL()
		remove = func() {
			srv.Stop()
			_ = os.RemoveAll(dir)
		}
	}
	nc, err = nats.Connect(url, opts...)
	if err != nil {
		remove()
		return nil, nil, fmt.Errorf("connect to %s: %w", url, err)
	}
	return nc, sync.OnceFunc(func() {
		nc.Close()
		remove()
	}), nil
}
