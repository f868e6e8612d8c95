// Package consolecmd implements jetpull console and jetpull exporter.
package consolecmd

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	brokerclient "github.com/jetpull/jetpull/broker/client"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/client"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/remote"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/serve"
	"github.com/jetpull/jetpull/console"
	"github.com/jetpull/jetpull/feed"
	"github.com/jetpull/jetpull/internal/service"
	"github.com/jetpull/jetpull/internal/service/exporter"
	"github.com/jetpull/jetpull/internal/service/httpserve"
	"github.com/jetpull/jetpull/internal/tokens"
	relayclient "github.com/jetpull/jetpull/relay/client"
)

const help = `Serve a web console for operators. It shows consumers, messages, dead letters, a
broker, a relay and a feed, and has actions to fix failures.

The flags select the sources: --server or --embedded for NATS, --broker, --relay and
--feed. Without these flags, the console finds NATS as the other commands do. If a source
does not respond, the console starts anyway, shows this on its pages, and shows the
source as soon as it responds.

Without --console-token everybody who reaches the address may do everything, so the
address must be on loopback. --console-read-token gives access without actions, and
without payloads and headers of messages unless --console-read-payloads is given.`

// The environment variables for tokens of the console, and for the secret of its alerts.
const (
	envToken       = "JETPULL_CONSOLE_TOKEN"
	envReadToken   = "JETPULL_CONSOLE_READ_TOKEN"
	envAlertSecret = "JETPULL_CONSOLE_ALERT_SECRET"
)

const (
	// connections is the maximum number of connections per address. Each open page has one for its events.
	connections = 256
	// drain is how long requests may continue after a signal. The streams of open pages end at once.
	drain = 5 * time.Second
	// openPatience is how long the start waits for a feed's database. If that takes longer, the console opens it later.
	openPatience = 2 * time.Second
)

type flags struct {
	cfg                                                  console.Config // the settings that have flags
	listen, broker, brokerToken, relay, relayToken, feed string
	publicURL, alertURL                                  string
	tokens, readTokens, contexts, proxies                []string
}

// New returns the command console.
func New(g *client.Globals) *cobra.Command {
	f := &flags{}
	cmd := &cobra.Command{
		Use:   "console",
		Short: "Serve a web console for consumers, broker, relay and feed",
		Long:  help,
		Example: `  jetpull console --embedded data
  jetpull console --nats nats://n1:4222 --relay http://relay:8080 --feed postgres://feed@db/feed`,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd, g) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.listen, "listen", "127.0.0.1:8222", "`ADDRESS` to serve on")
	flags.StringArrayVar(&f.tokens, "console-token", nil, "`[NAME=]TOKEN` of an administrator, NAME for the log; repeatable; $"+envToken+", with spaces")
	flags.StringArrayVar(&f.readTokens, "console-read-token", nil, "`[NAME=]TOKEN` that allows to look only; repeatable; $"+envReadToken)
	flags.StringVar(&f.cfg.UserHeader, "console-user-header", "", "`HEADER` in which --http-trusted-proxies name the user, such as X-Forwarded-User")
	flags.BoolVar(&f.cfg.ReaderPayloads, "console-read-payloads", false, "show payloads and headers of messages to users of --console-read-token too")
	flags.StringArrayVar(&f.contexts, "context", nil, "`NAME` of a context of the nats command, or the absolute path of its file (NATS_CONTEXT); "+
		"repeatable: each has a console, at /c/NAME/")
	cli.Checked(flags, "context", func() error {
		if slices.Contains(f.contexts, "") {
			return errors.New("--context: it is empty; give a name, or leave it out")
		}
		return nil
	})
	flags.StringVar(&f.cfg.Environment, "console-name", "",
		"`NAME` of the environment, such as production, which each page has, with a colour of its own")
	flags.StringVar(&f.publicURL, "http-public-url", "", "`URL` by which browsers reach the console, such as https://example.com/console")
	flags.StringSliceVar(&f.proxies, "http-trusted-proxies", nil, "addresses and networks of reverse proxies, such as 10.0.0.0/8: a client's "+
		"address is the last other one in X-Forwarded-For, and X-Forwarded-Prefix is in front of the paths that it sees")
	flags.StringVar(&f.broker, "broker", "", "`URL` of a broker")
	flags.StringVar(&f.brokerToken, "broker-token", "", "admin `TOKEN` of the broker; $"+remote.BrokerToken)
	flags.StringVar(&f.relay, "relay", "", "`URL` of a relay")
	flags.StringVar(&f.relayToken, "relay-token", "", "admin `TOKEN` of the relay; $"+remote.RelayToken)
	flags.StringVar(&f.cfg.State, "console-state", "jetpull-console",
		"`BUCKET` in NATS for log, operations and charts; empty: they end with the process")
	flags.StringVar(&f.alertURL, "console-alert-url", "", "`URL` that gets a POST when a state becomes red and back, signed with $"+envAlertSecret)
	flags.StringVar(&f.feed, "feed", "", "`DSN` of the database of a feed")
	return cmd
}

func (f *flags) run(cmd *cobra.Command, g *client.Globals) (err error) {
	ctx := cmd.Context()
	users, err := usersOf("--console-token", f.tokens, envToken, console.Admin)
	readers, readErr := usersOf("--console-read-token", f.readTokens, envReadToken, console.ReadOnly)
	if err := cmp.Or(err, readErr); err != nil {
		return cli.Usage(err)
	}
	users = append(users, readers...)
	loopback, err := service.Loopback(f.listen)
	switch {
	case err != nil:
		return cli.Usage(fmt.Errorf("--listen %q is not host:port, such as 127.0.0.1:8222", f.listen))
	case len(users) > 0 && !slices.ContainsFunc(users, func(u console.User) bool { return u.Role == console.Admin }):
		return cli.Usage(errors.New("--console-read-token needs --console-token: without it everybody is an administrator"))
	case len(users) == 0 && !loopback:
		return cli.Usage(fmt.Errorf("--listen %s opens everything to other machines: add --console-token or $%s, or use 127.0.0.1", f.listen, envToken))
	}
	if f.cfg.UserHeader != "" && len(f.proxies) == 0 {
		return cli.Usage(fmt.Errorf("--console-user-header %s needs --http-trusted-proxies: the header of anybody else is not believed", f.cfg.UserHeader))
	}
	_, public := httpserve.ParsePublicURL(f.publicURL)
	f.cfg.Alerts, err = console.NewAlerts(f.alertURL, os.Getenv(envAlertSecret), f.publicURL)
	err = cmp.Or(service.Named("--http-public-url", public), service.Named("--http-trusted-proxies", httpserve.CheckProxies(f.proxies)),
		service.Named("--console-alert-url and $"+envAlertSecret, err))
	if err != nil {
		return cli.Usage(err)
	}
	var closers service.Closers
	defer closers.Close()
	f.cfg.Loopback, f.cfg.Log = loopback, service.NewLog(cmd.ErrOrStderr(), slog.LevelInfo)
	if len(users) > 0 {
		f.cfg.Access = users.Of
	}
	c, err := f.console(ctx, cmd, g, &closers)
	if err != nil {
		return err
	}
	// Streams of open pages must end with the command. Otherwise, the listener would wait for them.
	handler := httpserve.Mount(ctx, "/", c, nil)
	return serve.HTTP(cmd, "/", drain, httpserve.Config{
		Address: f.listen, Handler: handler, Read: time.Minute, PerAddress: connections, Proxies: f.proxies, Public: f.publicURL, Log: f.cfg.Log,
	})
}

var (
	// named matches NAME=TOKEN. Any further "=" is part of the token, such as the padding of base64.
	named = regexp.MustCompile(`^([\pL][\pL\pN._@-]*)=(.*[^=].*)$`)
	// nameless matches NAME= without a token, as an empty variable leaves it. Padded base64 matches too.
	nameless = regexp.MustCompile(`^[\pL][\pL\pN._@-]*=+$`)
)

// usersOf reads the tokens of a flag, or else of an environment variable. A variable without any names is one token. Its errors show no token.
func usersOf(flag string, tokens []string, variable string, role console.Role) (users console.Users, err error) {
	tokens = slices.DeleteFunc(slices.Clone(tokens), func(token string) bool { return token == "" })
	if value := os.Getenv(variable); len(tokens) == 0 && value != "" {
		flag = "$" + variable
		if tokens = strings.Fields(value); !slices.ContainsFunc(tokens, func(t string) bool { return named.MatchString(t) || noToken(t) }) {
			tokens = []string{strings.TrimSpace(value)}
		}
	}
	for i, token := range tokens {
		name := ""
		parts := named.FindStringSubmatch(token)
		switch {
		case strings.TrimSpace(token) == "":
			return nil, fmt.Errorf("%s: token %d of %d is empty: give a long random text", flag, i+1, len(tokens))
		case noToken(token):
			return nil, fmt.Errorf("%s: number %d of %d ends with = and has no token behind it: write NAME=TOKEN, and see that TOKEN is not empty", flag,
				i+1, len(tokens))
		case parts != nil:
			name, token = parts[1], parts[2]
		case len(tokens) > 1:
			return nil, fmt.Errorf("%s: token %d of %d has no name: with several, write each as NAME=TOKEN, and none with a space", flag, i+1, len(tokens))
		}
		users = append(users, console.User{Name: name, Token: token, Role: role})
	}
	return users, nil
}

// noToken reports whether a text is NAME= without a token. Padded base64 is a token if it has at least 20 characters, not all in lower case.
func noToken(text string) bool {
	_, err := base64.StdEncoding.DecodeString(text)
	_, urlErr := base64.URLEncoding.DecodeString(text)
	random := len(text) >= 20 && text != strings.ToLower(text) && (err == nil || urlErr == nil)
	return nameless.MatchString(text) && !random
}

// console returns the console of the sources that the flags name, or a console for each context if there are several.
func (f *flags) console(ctx context.Context, cmd *cobra.Command, g *client.Globals, closers *service.Closers) (http.Handler, error) {
	if len(f.contexts) < 2 {
		g.Target.Context = strings.Join(f.contexts, "")
		if err := f.sources(ctx, cmd, g, closers); err != nil {
			return nil, err
		}
		c := console.Handler(f.cfg)
		closers.Add(c.Close)
		return c, nil
	}
	for name, value := range map[string]string{"broker": f.broker, "relay": f.relay, "feed": f.feed, "console-name": f.cfg.Environment} {
		if value != "" {
			return nil, cli.Usage(fmt.Errorf("--%s is of one console, and each --context has its own: give one --context, or leave --%s out", name, name))
		}
	}
	var contexts []console.Context
	for _, name := range f.contexts {
		g.Target.Context = name
		source, err := f.openNATS(ctx, cmd, g.Target, closers)
		if err != nil {
			return nil, err
		}
		contexts = append(contexts, console.Context{Name: strings.TrimSuffix(filepath.Base(name), ".json"), NATS: source})
	}
	c, err := console.Contexts(f.cfg, contexts)
	if err != nil {
		return nil, cli.Usage(fmt.Errorf("--context: %w", err))
	}
	closers.Add(c.Close)
	return c, nil
}

// openNATS connects to NATS. If no server answers, it returns, and the connection retries.
func (f *flags) openNATS(ctx context.Context, cmd *cobra.Command, t client.Target, closers *service.Closers) (console.NATS, error) {
	t.NoWait = true
	l, err := t.Open(ctx, "console", f.cfg.Log)
	if err != nil {
		return nil, err
	}
	closers.Add(l.Close)
	l.Listens(cmd.ErrOrStderr(), cli.JSON(cmd))
	return console.JetStream(l.JS), nil
}

func (f *flags) sources(ctx context.Context, cmd *cobra.Command, g *client.Globals, closers *service.Closers) error {
	t := g.Target
	named := t.URL != "" || t.Context != "" || t.Embedded != ""
	if named || f.broker == "" && f.relay == "" && f.feed == "" {
		var err error
		if f.cfg.NATS, err = f.openNATS(ctx, cmd, t, closers); err != nil {
			return err
		}
	}
	if err := cmp.Or(cli.CheckURL("--broker", f.broker), cli.CheckURL("--relay", f.relay)); err != nil {
		return err
	}
	if f.broker != "" {
		f.cfg.Broker = brokerclient.NewAdmin(f.broker, cmp.Or(f.brokerToken, os.Getenv(remote.BrokerToken)), nil)
	}
	if f.relay != "" {
		f.cfg.Relay = relayclient.New(f.relay, cmp.Or(f.relayToken, os.Getenv(remote.RelayToken)), nil)
	}
	if f.feed == "" {
		return nil
	}
	var store *feed.Store
	closers.Add(func() {
		if store != nil {
			_ = store.Close() // the store runs no work of its own
		}
	})
	f.cfg.OpenFeed = func(ctx context.Context) (_ console.Feed, err error) {
		if store == nil {
			store, err = feed.Open(ctx, f.feed, feed.NoMigrate())
		}
		return store, err
	}
	ctx, cancel := context.WithTimeout(ctx, openPatience)
	defer cancel()
	if _, err := f.cfg.OpenFeed(ctx); errors.Is(err, feed.ErrInvalid) { // a retry cannot succeed
		return fmt.Errorf("--feed: %w", err)
	}
	return nil
}

// Beside returns the function for a system's option Console, which opens the console on the system's listener. token is the system's admin
// token. If it is empty, everybody who can reach the listener is an administrator. source adds the system to the console's configuration,
// with a client that makes requests to the system's handler at http://localhost.
func Beside(listener, token string, log *slog.Logger, source func(*console.Config, *http.Client)) func(http.Handler) (http.Handler, func()) {
	return func(api http.Handler) (http.Handler, func()) {
		loopback, _ := service.Loopback(listener) // the system has checked the listener
		cfg := console.Config{Loopback: loopback && token == "", Log: log}
		if token != "" {
			cfg.Access = console.Tokens(token, "")
		}
		source(&cfg, &http.Client{Transport: httpserve.InProcess{Handler: api}})
		c := console.Handler(cfg)
		return c, c.Close
	}
}

// OfFeed returns the console of a feed and its watcher. address is where it will listen. Without a token, the console is open to everybody if that
// is a loopback address, and to nobody otherwise. The caller must close it.
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

const envExporterToken = "JETPULL_EXPORTER_TOKEN"

const (
	failedLogins        = 10 // per address and minute
	exporterConnections = 64 // per address: Prometheus, an autoscaler and probes need few
	requestTime         = time.Minute
)

// NewExporter returns the command exporter.
func NewExporter(g *client.Globals) *cobra.Command {
	var listen, token string
	cmd := &cobra.Command{
		Use:   "exporter",
		Short: "Serve metrics of consumers for Prometheus, and how many processes each needs for KEDA",
		Long: `Serve the state of the consumers of an account: /metrics for Prometheus, and
/v1/scale/STREAM/CONSUMER?per=N&max=M for the scaler metrics-api of KEDA. That divides
the messages that wait, or are handled, by N: the number of messages that one process
handles within the time that you want. jetpull console serves the same.`,
		Example: `  jetpull exporter
  jetpull exporter --nats nats://n1:4222 --listen 0.0.0.0:9091 --exporter-token secret`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return export(cmd, g, listen, cmp.Or(token, os.Getenv(envExporterToken)))
		},
	}
	cmd.Flags().StringVar(&listen, "listen", "127.0.0.1:9091", "`ADDRESS` to serve on")
	cmd.Flags().StringVar(&token, "exporter-token", "", "`TOKEN` that requests need, as Authorization: Bearer; $"+envExporterToken)
	return cmd
}

func export(cmd *cobra.Command, g *client.Globals, listen, token string) error {
	loopback, err := service.Loopback(listen)
	switch {
	case err != nil:
		return cli.Usage(fmt.Errorf("--listen %q is not host:port, such as 127.0.0.1:9091", listen))
	case token == "" && !loopback:
		return cli.Usage(errors.New("--listen " + listen + " can be reached from other machines, and anybody could read the names and counts of " +
			"consumers: add --exporter-token or $" + envExporterToken + ", or listen on 127.0.0.1"))
	}
	g.Target.NoWait = true
	log := service.NewLog(cmd.ErrOrStderr(), slog.LevelInfo)
	l, err := g.Target.Open(cmd.Context(), "exporter", log)
	if err != nil {
		return err
	}
	defer l.Close()
	cfg := exporter.Config{JS: l.JS, Loopback: loopback, Log: log}
	if token != "" {
		cfg.Valid = func(given string) bool { return tokens.Same(given, token) }
		cfg.Logins = httpserve.NewLogins(failedLogins, log, func() {})
	}
	return serve.HTTP(cmd, "/", drain, httpserve.Config{
		Address: listen, Handler: exporter.Handler(cfg), Read: requestTime, Write: requestTime, PerAddress: exporterConnections, Log: log,
	})
}
