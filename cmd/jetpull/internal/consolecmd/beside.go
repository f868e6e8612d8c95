package consolecmd

import (
	"fmt"
	"log/slog"
	"net/http"

	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
	"github.com/jetpull/jetpull/console"
	"github.com/jetpull/jetpull/feed"
	"github.com/jetpull/jetpull/internal/service"
	"github.com/jetpull/jetpull/internal/service/httpserve"
)

// Beside returns what the option Console of a system needs to open the console on the system's listener. Token is the system's admin token;
// empty: everybody who reaches it is an administrator. Source adds the system to the console's configuration, with a client that makes
// requests to the system's handler at http://localhost.
func Beside(listener, token string, log *slog.Logger, source func(*console.Config, *http.Client)) func(http.Handler) (http.Handler, func()) {
	return func(api http.Handler) (http.Handler, func()) {
		loopback, _ := service.Loopback(listener) // the system has checked it
		cfg := console.Config{Loopback: loopback && token == "", Log: log}
		if token != "" {
			cfg.Access = console.Tokens(token, "")
		}
		source(&cfg, &http.Client{Transport: httpserve.InProcess{Handler: api}})
		c := console.Handler(cfg)
		return c, c.Close
	}
}

// OfFeed is the console of a feed and its watcher that listens on an address. Without a token it is open to everybody who reaches a
// loopback address, and to nobody elsewhere. The caller closes it.
func OfFeed(s *feed.Store, w *feed.Watcher, address, token string, log *slog.Logger) (*console.Console, error) {
	loopback, err := service.Loopback(address)
	if err != nil {
		return nil, cli.Usage(fmt.Errorf("--metrics %q is not host:port, such as 127.0.0.1:9090", address))
	}
	cfg := console.Config{Feed: s, FeedWatcher: w, Loopback: loopback, Log: log}
	if token != "" || !loopback {
		cfg.Access = console.Tokens(token, "")
	}
	return console.Handler(cfg), nil
}
