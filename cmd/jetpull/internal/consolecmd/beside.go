package consolecmd

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"sync/atomic"

	"github.com/spf13/cobra"

	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/serve"
	"github.com/jetpull/jetpull/console"
	"github.com/jetpull/jetpull/feed"
	"github.com/jetpull/jetpull/internal/service"
	"github.com/jetpull/jetpull/internal/service/httpserve"
)

// Beside is the console on the listener of a system. It is the system's node too, so that it ends with it.
type Beside struct {
	// On is false with --console=false.
	On bool

	serve.Node
	console atomic.Pointer[console.Console]
}

// Flag adds the flag that turns the console off.
func (b *Beside) Flag(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&b.On, "console", true, "serve the console at /console/")
}

// Open opens the console of a system that has started, and returns itself as the node. Token is the system's admin token; empty: everybody
// who reaches it is an administrator. Source adds the system to the console's configuration, with a client that makes requests to the
// system's handler at http://localhost.
func (b *Beside) Open(node interface {
	serve.Node
	Handler() http.Handler
}, listener, token string, log *slog.Logger, source func(*console.Config, *http.Client),
) serve.Node {
	b.Node = node
	if b.On {
		loopback, _ := service.Loopback(listener) // the system has checked it
		cfg := console.Config{Loopback: loopback && token == "", Log: log}
		if token != "" {
			cfg.Access = (&flags{token: token}).role
		}
		source(&cfg, &http.Client{Transport: httpserve.InProcess{Handler: node.Handler()}})
		b.console.Store(console.Handler(cfg))
	}
	return b
}

// ServeHTTP implements http.Handler.
func (b *Beside) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := b.console.Load()
	if c == nil {
		http.Error(w, "The console has not started yet.", http.StatusServiceUnavailable)
		return
	}
	c.ServeHTTP(w, r)
}

// Stop stops the node, and then the console.
func (b *Beside) Stop(ctx context.Context) error {
	err := b.Node.Stop(ctx)
	if c := b.console.Load(); c != nil {
		c.Close()
	}
	return err
}

// OfFeed is the console of a feed and its watcher that listens on an address. Without a token it is open to everybody who reaches a loopback address, and to
// nobody elsewhere. The caller closes it.
func OfFeed(s *feed.Store, w *feed.Watcher, address, token string, log *slog.Logger) (*console.Console, error) {
	loopback, err := service.Loopback(address)
	if err != nil {
		return nil, cli.Usage(fmt.Errorf("--metrics %q is not host:port, such as 127.0.0.1:9090", address))
	}
	cfg := console.Config{Feed: s, FeedWatcher: w, Loopback: loopback, Log: log}
	if token != "" || !loopback {
		cfg.Access = (&flags{token: token}).role
	}
	return console.Handler(cfg), nil
}
